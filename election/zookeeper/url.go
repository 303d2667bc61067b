package zookeeper

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

// defaultPort is where ZooKeeper listens for clients.
const defaultPort = "2181"

// OpenURL is Open with a URL: zookeeper://user:password@host:port,host:port/chroot, of
// which only one host is needed. Its parameters are session-timeout and
// answer-timeout, durations as in 30s. What the URL names replaces what o holds. The
// error never holds a piece of the URL.
func OpenURL(rawURL string, o Options) (*Backend, error) {
	servers, o, err := parseURL(rawURL, o)
	if err != nil {
		return nil, fmt.Errorf("zookeeper election backend: %w: %w: zookeeper://user:password@host:port,host:port/chroot", connurl.ErrInvalid, err)
	}
	return Open(servers, o)
}

// parseURL reads a URL of several hosts, which net/url refuses. Its errors quote
// nothing: what passes for a host or a path may be of a password.
func parseURL(rawURL string, o Options) ([]string, Options, error) {
	if err := connurl.Check(rawURL); err != nil {
		return nil, o, err
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || !strings.EqualFold(scheme, "zookeeper") {
		return nil, o, errors.New("it does not begin with zookeeper://")
	}
	if strings.Contains(rest, "#") {
		return nil, o, errors.New("it has a fragment")
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, slash := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, password, _ := strings.Cut(hosts[:i], ":")
		hosts = hosts[i+1:]
		var err1, err2 error
		o.User, err1 = url.PathUnescape(user)
		o.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil || o.User == "" {
			return nil, o, errors.New("its user or password is not as it should be, percent-encoded")
		}
	}
	servers, err := parseHosts(hosts)
	if err != nil {
		return nil, o, err
	}
	if slash && path != "" {
		if o.Chroot, err = url.PathUnescape("/" + strings.TrimSuffix(path, "/")); err != nil {
			return nil, o, errors.New("its chroot is not as it should be, percent-encoded")
		}
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return nil, o, errors.New("its parameters cannot be read")
	}
	for name, values := range parameters {
		d, err := time.ParseDuration(values[len(values)-1])
		switch {
		case name != "session-timeout" && name != "answer-timeout":
			return nil, o, errors.New("its parameters are not of session-timeout and answer-timeout")
		case err != nil || d <= 0:
			return nil, o, errors.New("a parameter of it is no duration such as 30s")
		case name == "session-timeout":
			o.SessionTimeout = d
		default:
			o.AnswerTimeout = d
		}
	}
	return servers, o, nil
}

// parseHosts reads hosts with or without ports, with commas between.
func parseHosts(s string) ([]string, error) {
	var servers []string
	for i, h := range strings.Split(s, ",") {
		host, port := h, defaultPort
		if strings.HasSuffix(h, "]") && strings.HasPrefix(h, "[") {
			host = h[1 : len(h)-1]
		} else if strings.Contains(h, ":") {
			var err error
			if host, port, err = net.SplitHostPort(h); err != nil {
				return nil, fmt.Errorf("server %d is no host:port", i+1)
			}
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if host == "" || err != nil || n == 0 || strings.ContainsAny(host, " %\t\r\n\x00") {
			return nil, fmt.Errorf("server %d is no host:port", i+1)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	return servers, nil
}
