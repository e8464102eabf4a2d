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

// Step is a step of the rotation of CAs. Every process must have loaded the new files
// before the next step: servers reload theirs within a minute, clients read the CA
// when they start. Then no process meets a certificate of a CA that it does not trust.
type Step string

// The steps, in their order.
const (
	// Prepare creates the next CA and adds it to the trusted CAs.
	Prepare Step = "prepare"
	// Switch signs all certificates with the next CA. The previous CA is still trusted.
	Switch Step = "switch"
	// Finish removes the previous CA from the trusted CAs.
	Finish Step = "finish"
)

// AllSteps returns all steps in their order.
func AllSteps() []Step { return []Step{Prepare, Switch, Finish} }

// Rotate takes one step in the rotation of the given CAs, or of all CAs if none is
// given, and returns the paths that it wrote. It returns an error and changes nothing
// if the step is out of order for one of the CAs.
func Rotate(options Options, step Step, which ...CA) (created []string, err error) {
	if len(which) == 0 {
		which = CAs()
	}
	layout := Layout{options.Dir}
	var all []*rotation
	for _, a := range which {
		if slices.Contains(options.ExternalCAs, a) {
			return nil, fmt.Errorf("CA %s is external and cannot be rotated here", a)
		}
		r, err := newRotation(layout, a)
		if err == nil {
			err = r.checkOrder(step)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		paths, err := r.runStep(step, options.caLifetime())
		if err != nil {
			return created, err
		}
		created = append(created, paths...)
	}
	more, err := Ensure(options)
	return append(created, more...), err
}

// rotation is a CA between two steps.
type rotation struct {
	ca         CA
	pair, next Pair
	chain      [][]byte // trusted certificates; the first one signs
	successor  []byte   // certificate of the next CA; nil before Prepare
}

// newRotation reads the current CA and the next one, if that exists.
func newRotation(layout Layout, ca CA) (*rotation, error) {
	if !slices.Contains(CAs(), ca) {
		return nil, fmt.Errorf("CA %q is not one of %v", ca, CAs())
	}
	state := &rotation{ca: ca, pair: layout.CA(ca), next: layout.NextCA(ca)}
	current, err := tlsfiles.LoadPair(state.pair.Cert, state.pair.Key)
	if err != nil {
		return nil, fmt.Errorf("the CA to rotate: %w", err)
	}
	state.chain = current.Certificate().Certificate
	next, err := tlsfiles.LoadPair(state.next.Cert, state.next.Key)
	switch {
	case err == nil:
		state.successor = next.Certificate().Leaf.Raw
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the next CA: %w", err)
	}
	return state, nil
}

// checkOrder returns an error if the step is out of order.
func (r *rotation) checkOrder(step Step) error {
	switch step {
	case Prepare:
		if r.successor != nil || len(r.chain) > 1 {
			return fmt.Errorf("a rotation is in progress: %s trusts %d CAs", r.pair.Cert, len(r.chain))
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
		return fmt.Errorf("step %q is not one of %v", step, AllSteps())
	}
	return nil
}

// runStep performs a step of the rotation and returns the written files.
func (r *rotation) runStep(step Step, lifetime time.Duration) (created []string, err error) {
	switch step {
	case Prepare:
		a, err := createAuthority(r.next, "binnacle-"+string(r.ca), time.Now(), lifetime)
		if err != nil {
			return nil, err
		}
		return []string{r.next.Cert, r.pair.Cert}, r.writeTrusted(nil, r.chain[0], a.cert.Raw)
	case Switch:
		key, err := os.ReadFile(r.next.Key)
		if err != nil {
			return nil, err
		}
		if err := r.writeTrusted(key, r.successor, r.chain[0]); err != nil {
			return nil, err
		}
		return []string{r.pair.Cert}, errors.Join(os.Remove(r.next.Cert), os.Remove(r.next.Key))
	}
	return []string{r.pair.Cert}, r.writeTrusted(nil, r.chain[0])
}

// writeTrusted writes the trusted certificates, the signing one first, and key if it is not
// nil.
func (r *rotation) writeTrusted(key []byte, certs ...[]byte) error {
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
