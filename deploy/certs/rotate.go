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

// Step is a step of the rotation of CAs. After each step every process must have
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

// Rotate takes one step in the rotation of the CAs given, all when none is, and
// returns the paths that it wrote. A step that makes no sense now for one of them
// is an error and changes nothing.
func Rotate(o Options, step Step, which ...CA) (made []string, err error) {
	if len(which) == 0 {
		which = CAs()
	}
	l := Layout{o.Dir}
	var all []*rotation
	for _, a := range which {
		r, err := newRotation(l, a)
		if err == nil {
			err = r.allows(step)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		paths, err := r.take(step)
		if err != nil {
			return made, err
		}
		made = append(made, paths...)
	}
	more, err := Ensure(o)
	return append(made, more...), err
}

// rotation is a CA between two steps.
type rotation struct {
	ca         CA
	pair, next Pair
	chain      [][]byte // those that are trusted, the one that signs first
	successor  []byte   // nil without one that waits
}

func newRotation(l Layout, a CA) (*rotation, error) {
	if !slices.Contains(CAs(), a) {
		return nil, fmt.Errorf("CA %q is not one of %v", a, CAs())
	}
	r := &rotation{ca: a, pair: l.CA(a), next: l.NextCA(a)}
	now, err := tlsfiles.LoadPair(r.pair.Cert, r.pair.Key)
	if err != nil {
		return nil, fmt.Errorf("the CA to rotate: %w", err)
	}
	r.chain = now.Certificate().Certificate
	next, err := tlsfiles.LoadPair(r.next.Cert, r.next.Key)
	switch {
	case err == nil:
		r.successor = next.Certificate().Leaf.Raw
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the next CA: %w", err)
	}
	return r, nil
}

// allows tells whether a step makes sense now.
func (r *rotation) allows(step Step) error {
	switch step {
	case Prepare:
		if r.successor != nil || len(r.chain) > 1 {
			return fmt.Errorf("a rotation is under way: %s trusts %d CAs", r.pair.Cert, len(r.chain))
		}
	case Switch:
		if r.successor == nil || len(r.chain) < 2 {
			return fmt.Errorf("%s does not trust the next CA yet: the step %q comes first", r.pair.Cert, Prepare)
		}
	case Finish:
		if r.successor != nil || len(r.chain) < 2 {
			return fmt.Errorf("the former CA is not replaced: the step %q comes first", Switch)
		}
	default:
		return fmt.Errorf("step %q is not one of %v", step, Steps())
	}
	return nil
}

func (r *rotation) take(step Step) (made []string, err error) {
	switch step {
	case Prepare:
		a, _, err := ensureCA(r.next, "binnacle-"+string(r.ca), time.Now())
		if err != nil {
			return nil, err
		}
		return []string{r.next.Cert, r.pair.Cert}, r.write(nil, r.chain[0], a.cert.Raw)
	case Switch:
		key, err := os.ReadFile(r.next.Key)
		if err != nil {
			return nil, err
		}
		if err := r.write(key, r.successor, r.chain[0]); err != nil {
			return nil, err
		}
		return []string{r.pair.Cert}, errors.Join(os.Remove(r.next.Cert), os.Remove(r.next.Key))
	}
	return []string{r.pair.Cert}, r.write(nil, r.chain[0])
}

// write writes what is trusted, the CA that signs first, and its key if that
// changes.
func (r *rotation) write(key []byte, certs ...[]byte) error {
	var out bytes.Buffer
	for _, der := range slices.CompactFunc(certs, bytes.Equal) {
		out.Write(tlsfiles.EncodeCertificate(der))
	}
	if key != nil {
		if err := tlsfiles.WriteFile(r.pair.Key, key, 0o600); err != nil {
			return err
		}
	}
	return tlsfiles.WriteFile(r.pair.Cert, out.Bytes(), 0o644)
}
