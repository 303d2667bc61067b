package rediscluster

import (
	"bytes"
	"strconv"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

// Slot is the slot of a key: of its hash tag, if it has one, and else of all of it.
func Slot(key []byte) int {
	if i := bytes.IndexByte(key, '{'); i >= 0 {
		if n := bytes.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1 : i+1+n]
		}
	}
	return int(crc16(key) % Slots)
}

// Tag is a short text whose slot is the given one, the same at each call.
func Tag(slot int) string {
	var buf [16]byte
	for i := int64(0); ; i++ {
		if b := strconv.AppendInt(buf[:0], i, 36); int(crc16(b)%Slots) == slot {
			return string(b)
		}
	}
}

// crcNibbles are the remainders of CRC-16/XMODEM for four bits.
var crcNibbles = [16]uint16{
	0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
	0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
}

func crc16(b []byte) (crc uint16) {
	for _, c := range b {
		crc = crc<<4 ^ crcNibbles[crc>>12^uint16(c>>4)]
		crc = crc<<4 ^ crcNibbles[crc>>12^uint16(c&15)]
	}
	return crc
}
