package policy

import "strings"

// A redisList is names of one class, separated by spaces.
type redisList struct {
	class RedisClass
	names string
}

func redisNames(lists ...redisList) map[string]RedisClass {
	m := make(map[string]RedisClass)
	for _, l := range lists {
		for _, name := range strings.Fields(l.names) {
			m[name] = l.class
		}
	}
	return m
}

func redisSet(list string) map[string]bool {
	m := make(map[string]bool)
	for _, name := range strings.Fields(list) {
		m[name] = true
	}
	return m
}
