package certs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// Step is a step of a CA's rotation. After each step every process must have
// taken up the files: servers follow theirs within a minute, clients read the CA
// when they start. So no one ever meets a certificate whose CA it does not trust.
type Step string

// The steps, in their order.
const (
	// Prepare makes the next CA and adds it to those that are trusted.
	Prepare Step = "prepare"
	// Switch makes the next CA the one that signs, and signs everything anew;
	// the former one is trusted still.
	Switch Step = "switch"
	// Finish trusts the former CA no longer.
	Finish Step = "finish"
)

// Steps are all steps in their order.
func Steps() []Step { return []Step{Prepare, Switch, Finish} }

// Rotate takes one step in the rotation of the CA, and returns the paths that it
// wrote. A step that makes no sense now is an error and changes nothing.
func Rotate(o Options, step Step) (made []string, err error) {
	l := Layout{o.Dir}
	ca, err := tlsfiles.LoadPair(l.CA().Cert, l.CA().Key)
	if err != nil {
		return nil, fmt.Errorf("the CA to rotate: %w", err)
	}
	chain := ca.Certificate().Certificate
	next, err := tlsfiles.LoadPair(l.NextCA().Cert, l.NextCA().Key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the next CA: %w", err)
	}
	switch step {
	case Prepare:
		if next != nil || len(chain) > 1 {
			return nil, fmt.Errorf("a rotation is under way: %s trusts %d CAs", l.CA().Cert, len(chain))
		}
		a, _, err := ensureCA(l.NextCA(), "binnacle-ca", time.Now())
		if err != nil {
			return nil, err
		}
		return []string{l.NextCA().Cert, l.CA().Cert}, writeCA(l, nil, chain[0], a.cert.Raw)
	case Switch:
		if next == nil || len(chain) < 2 {
			return nil, fmt.Errorf("%s does not trust the next CA yet: the step %q comes first", l.CA().Cert, Prepare)
		}
		key, err := os.ReadFile(l.NextCA().Key)
		if err != nil {
			return nil, err
		}
		if err := writeCA(l, key, next.Certificate().Leaf.Raw, chain[0]); err != nil {
			return nil, err
		}
		if err := errors.Join(os.Remove(l.NextCA().Cert), os.Remove(l.NextCA().Key)); err != nil {
			return nil, err
		}
		made, err = Ensure(o)
		return append([]string{l.CA().Cert}, made...), err
	case Finish:
		if next != nil || len(chain) < 2 {
			return nil, fmt.Errorf("the former CA is not replaced: the step %q comes first", Switch)
		}
		return []string{l.CA().Cert}, writeCA(l, nil, chain[0])
	}
	return nil, fmt.Errorf("step %q is not one of %v", step, Steps())
}

// writeCA writes what is trusted, the CA that signs first, and its key if that
// changes.
func writeCA(l Layout, key []byte, certs ...[]byte) error {
	var out bytes.Buffer
	for _, der := range slices.CompactFunc(certs, bytes.Equal) {
		out.Write(tlsfiles.EncodeCertificate(der))
	}
	if key != nil {
		if err := tlsfiles.WriteFile(l.CA().Key, key, 0o600); err != nil {
			return err
		}
	}
	return tlsfiles.WriteFile(l.CA().Cert, out.Bytes(), 0o644)
}
