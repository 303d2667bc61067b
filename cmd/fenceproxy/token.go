package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
)

// tokenEnv names the environment variable that a token is read from.
const tokenEnv = "FENCE_TOKEN"

// tokenFlags say where a token comes from. There is no flag with the token itself:
// everybody on the machine can read a command line.
type tokenFlags struct {
	TokenFile string `placeholder:"FILE" help:"Read the token from this file, - for standard input. Without it, from the environment variable FENCE_TOKEN."`
}

// token reads the token.
func (f tokenFlags) token(s *streams) (election.Token, error) {
	text, from := os.Getenv(tokenEnv), tokenEnv
	if f.TokenFile == "" && text == "" {
		return election.Token{}, usage("no token: set %s, or name a file with --token-file (- for standard input)", tokenEnv)
	}
	if f.TokenFile != "" {
		var err error
		if text, from, err = readToken(f.TokenFile, s.in); err != nil {
			return election.Token{}, &exitError{exitUsage, err}
		}
	}
	t, err := election.ParseToken(strings.TrimSpace(text))
	if err != nil {
		return t, fmt.Errorf("the token of %s: %w", from, err)
	}
	return t, nil
}

func readToken(file string, in io.Reader) (text, from string, err error) {
	from = "standard input"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", "", fmt.Errorf("reading the token: %w", err)
		}
		defer f.Close()
		in, from = f, file
	}
	b, err := io.ReadAll(io.LimitReader(in, 4<<10))
	if err != nil {
		return "", "", fmt.Errorf("reading the token from %s: %w", from, err)
	}
	return string(b), from, nil
}

// saveToken writes a token to a file that only its owner may read, whole or not at all.
func saveToken(file string, t election.Token) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".fence-token-*")
	if err != nil {
		return fmt.Errorf("saving the token: %w", err)
	}
	defer os.Remove(tmp.Name()) // fails once it is renamed, rightly
	_, err = tmp.WriteString(t.Reveal() + "\n")
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("saving the token: %w", err)
	}
	return nil
}
