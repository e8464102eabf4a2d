// Package tokenfile implements the static token file (specification: "Methods", Static token file):
// lines of token, user name, uid and, optionally, a quoted list of groups. It is read once; its
// tokens are valid as long as the process runs. The API server and the token review service use it.
package tokenfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"binnacle/libs/authenticator"
)

// maxFileBytes bounds the size of the file.
const maxFileBytes = 64 << 20

// Columns of a line: token, user, uid, groups.
const (
	columnToken = iota
	columnUser
	columnUID
	columnGroups
)

// Authenticator authenticates the tokens of the file. It keeps only their digests: the timing of a
// map lookup by digest does not reveal how much of a guessed token is correct.
type Authenticator struct {
	users map[[sha256.Size]byte]*authenticator.User
}

// Load reads a file. Warnings concern skipped lines.
func Load(path string) (*Authenticator, []string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxFileBytes {
		return nil, nil, fmt.Errorf("token file %s is larger than %d bytes", path, maxFileBytes)
	}
	a, warnings, err := Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("token file %s: %w", path, err)
	}
	return a, warnings, nil
}

// Parse parses the content of a file. Errors and warnings contain the line number and never quote
// the line.
func Parse(data []byte) (*Authenticator, []string, error) {
	reader := csv.NewReader(bytes.NewReader(data))
	reader.FieldsPerRecord = -1
	a := &Authenticator{users: map[[sha256.Size]byte]*authenticator.User{}}
	var warnings []string
	for {
		record, err := reader.Read()
		if err == io.EOF {
			return a, warnings, nil
		}
		if err != nil {
			var bad *csv.ParseError
			if errors.As(err, &bad) {
				return nil, nil, fmt.Errorf("line %d: %w", bad.Line, bad.Err)
			}
			return nil, nil, err
		}
		line, _ := reader.FieldPos(0)
		token := record[columnToken]
		switch {
		case len(record) < columnGroups:
			return nil, nil, fmt.Errorf("line %d: must have at least 3 columns (token, user name, user uid), found %d", line, len(record))
		case token == "":
			warnings = append(warnings, fmt.Sprintf("line %d: empty token; ignoring the line", line))
		case len(token) > authenticator.MaxTokenBytes:
			return nil, nil, fmt.Errorf("line %d: %w", line, authenticator.ErrTooLong)
		default:
			key := sha256.Sum256([]byte(token))
			if _, twice := a.users[key]; twice {
				warnings = append(warnings, fmt.Sprintf("line %d: duplicate token; ignoring the earlier line", line))
			}
			a.users[key] = parseUser(record)
		}
	}
}

// parseUser returns the user of a line.
func parseUser(record []string) *authenticator.User {
	user := &authenticator.User{Name: record[columnUser], UID: record[columnUID]}
	if len(record) > columnGroups {
		for _, g := range strings.Split(record[columnGroups], ",") {
			if g != "" { // a space is part of a name, as in Kubernetes
				user.Groups = append(user.Groups, g)
			}
		}
	}
	return user
}

// Len returns the number of tokens.
func (a *Authenticator) Len() int { return len(a.users) }

// AuthenticateToken implements authenticator.Token. It does not support audiences.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	u, ok := a.users[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: *u}, true, nil
}
