package pg

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// readFirst reads a client's first packet, answering requests for encryption with no.
// It reads not one byte more.
func readFirst(client net.Conn) ([]byte, error) {
	ssl, gss := false, false
	for {
		var head [4]byte
		if _, err := io.ReadFull(client, head[:]); err != nil {
			return nil, fmt.Errorf("reading the length: %w", err)
		}
		n := int(int32(binary.BigEndian.Uint32(head[:])))
		// As the server: nothing is allocated for a length that is out of range.
		if n < 8 || n > maxStartup {
			return nil, &startupError{"08P01", "invalid length of startup packet"}
		}
		packet := make([]byte, n)
		copy(packet, head[:])
		if _, err := io.ReadFull(client, packet[4:]); err != nil {
			return nil, fmt.Errorf("reading %d bytes: %w", n, err)
		}
		code := binary.BigEndian.Uint32(packet[4:])
		switch {
		case code == codeSSL && !ssl:
			ssl = true
		case code == codeGSS && !gss:
			gss = true
		default:
			return packet, nil
		}
		if _, err := client.Write([]byte{'N'}); err != nil {
			return nil, fmt.Errorf("refusing encryption: %w", err)
		}
	}
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
