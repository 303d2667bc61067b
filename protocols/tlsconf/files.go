package tlsconf

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// maxFile bounds each file.
const maxFile = 1 << 20

// A live is a value made of files, made again when they change.
type live[T any] struct {
	paths []string
	build func(files [][]byte) (*T, error)
	now   atomic.Pointer[T]

	mu   sync.Mutex
	last [][]byte // what now was made of
}

func (l *live[T]) reload() (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := make([][]byte, len(l.paths))
	for i, p := range l.paths {
		if p == "" {
			continue
		}
		if files[i], err = readFile(p); err != nil {
			return false, err
		}
	}
	// Contents are compared, not times: files are replaced by links and renames too.
	if l.now.Load() != nil && slices.EqualFunc(files, l.last, bytes.Equal) {
		return false, nil
	}
	v, err := l.build(files)
	if err != nil {
		return false, err
	}
	l.now.Store(v)
	l.last = files
	return true, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrFile, path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrFile, path, maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return b, nil
}

// keyPair makes a certificate of the two files' contents.
func keyPair(certPath, keyPath string, cert, key []byte) (*tls.Certificate, error) {
	fail := func(path string, why error) (*tls.Certificate, error) {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, why)
	}
	if _, err := parseCerts(cert); err != nil {
		return fail(certPath, err)
	}
	for rest := key; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" {
			return fail(keyPath, errEncrypted)
		}
	}
	// What it says of a key tells its kind, never its contents.
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fail(keyPath, err)
	}
	return &pair, nil
}

var (
	errEncrypted = errors.New("the key is encrypted with a pass phrase, which is not supported: decrypt it (openssl pkey)")
	errNoCerts   = errors.New("holds no certificate in PEM form")
)

// parseCerts reads the certificates of a PEM file, of which there must be one.
func parseCerts(b []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errNoCerts
	}
	return all, nil
}

// authorities reads a file of them: as a pool, and in the order of the file.
func authorities(path string, b []byte) (*x509.CertPool, []*x509.Certificate, error) {
	certs, err := parseCerts(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p, certs, nil
}
