package pg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

var (
	errPacketLength = errors.New("invalid length of startup packet")
	errProxied      = errors.New("it is a header of the PROXY protocol, which the listener's configuration does not expect")
)

// readPacket reads a start-up packet whose first four bytes are there.
func readPacket(client net.Conn, head [4]byte) ([]byte, error) {
	n := int(int32(binary.BigEndian.Uint32(head[:])))
	// As the server: nothing is allocated for a length that is out of range, nor said to a
	// client that speaks something else.
	if n < 8 || n > maxStartup {
		if string(head[:]) == "\r\n\r\n" || string(head[:]) == "PROX" {
			return nil, fmt.Errorf("%w: %w", errPacketLength, errProxied)
		}
		return nil, errPacketLength
	}
	packet := make([]byte, n)
	copy(packet, head[:])
	if _, err := io.ReadFull(client, packet[4:]); err != nil {
		return nil, fmt.Errorf("reading %d bytes: %w", n, err)
	}
	return packet, nil
}

// linger is how long a client may take to read its last message and close.
const linger = 2 * time.Second

// endWriting ends the sending side and bounds how long is read on.
func endWriting(client net.Conn) {
	if w, ok := client.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_ = client.SetReadDeadline(time.Now().Add(linger))
}

// lingerClose ends the sending side and reads what still comes: closing with bytes
// unread would reset the connection and could take the last message away.
func lingerClose(client net.Conn) {
	endWriting(client)
	_, _ = io.Copy(io.Discard, client)
}
