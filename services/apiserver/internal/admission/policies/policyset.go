package policies

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
)

// policySet holds the policies of one type that have bindings. When a request arrives after a
// policy or binding has changed, it compiles the changed ones.
type policySet struct {
	policies, bindings admission.Source
	family             matcher.Family
	log                *slog.Logger

	mu               sync.Mutex // serializes updates; leaf lock
	compiledPolicies lister.Compiled[*policy]
	compiledBindings lister.Compiled[*binding]
	current          atomic.Pointer[policySnapshot]
}

// newPolicySet returns the set of policies and bindings in two sources. compilePolicy and
// compileBinding compile decoded objects of these sources.
func newPolicySet(
	config *Config,
	policies, bindings admission.Source,
	compilePolicy func(metav1.Object) *policy,
	compileBinding func(metav1.Object) *binding,
) *policySet {
	p := &policySet{policies: policies, bindings: bindings, family: config.Family, log: config.Logger}
	p.compiledPolicies = newCompiled(policies, "an admission policy", compilePolicy, p.logCorrupt)
	p.compiledBindings = newCompiled(bindings, "the binding of an admission policy", compileBinding, p.logCorrupt)
	if config.Metrics != nil {
		config.Metrics.keepWhileBound(p.boundPairs)
	}
	return p
}

// newCompiled returns the compiled objects of a source. description describes one of them in
// messages. onInvalid returns the function to call for a corrupt object.
func newCompiled[T any](
	source admission.Source,
	description string,
	compile func(metav1.Object) T,
	onInvalid func(description string) func(*objects.Entry, bool, error),
) lister.Compiled[T] {
	return lister.Compiled[T]{
		Store:     source.Store,
		OnInvalid: onInvalid(description),
		Compile: func(entry *objects.Entry) (T, error) {
			obj, err := source.Decode(entry)
			if err != nil {
				var none T
				return none, fmt.Errorf("%s %q: %w", description, entry.Name(), err) // clients receive this error
			}
			return compile(obj), nil
		},
	}
}

// logCorrupt returns a function that logs that an object is corrupt. retained reports
// whether its last decoded version stays in effect.
func (p *policySet) logCorrupt(description string) func(*objects.Entry, bool, error) {
	return func(entry *objects.Entry, retained bool, err error) {
		consequence := "rejecting requests that it may apply to"
		if retained {
			consequence = "keeping its previous content"
		}
		p.log.Error("failed to read "+description+"; "+consequence, "name", entry.Name(), "error", err)
	}
}

// boundPolicy is a policy with its bindings, sorted by name.
type boundPolicy struct {
	policy   *policy
	bindings []*binding
}

// policySnapshot is the result of compiling all policies and bindings at one version of their stores.
type policySnapshot struct {
	policies, bindings objects.Version
	index              *matcher.Index[*boundPolicy]
	// err is the error of an object whose content is unknown, or nil.
	err error
}

// waitForWrites blocks until the watch caches of policies and bindings contain all writes that this
// server has acknowledged.
func (p *policySet) waitForWrites(ctx context.Context) error {
	if err := p.policies.WaitForWrites(ctx); err != nil {
		return err
	}
	return p.bindings.WaitForWrites(ctx)
}

// index returns the index of the current policies, sorted by name. If a policy becomes corrupt, its
// last decoded version stays in effect. index returns an error if no version of a policy or binding
// was decoded.
func (p *policySet) index() (*matcher.Index[*boundPolicy], error) {
	policies := p.policies.Store.Snapshot()
	bindings := p.bindings.Store.Snapshot()
	if current := p.current.Load(); current != nil && current.policies == policies.Version() &&
		current.bindings == bindings.Version() {
		return current.index, current.err
	}
	current := p.rebuild()
	return current.index, current.err
}

// rebuild compiles the current policies and bindings, unless another goroutine has done so.
func (p *policySet) rebuild() *policySnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	policies := p.policies.Store.Snapshot()
	bindings := p.bindings.Store.Snapshot()
	next := &policySnapshot{policies: policies.Version(), bindings: bindings.Version()}
	if current := p.current.Load(); current != nil && current.policies == next.policies && current.bindings == next.bindings {
		return current
	}
	compiledBindings, bindingErr := p.compiledBindings.Update(bindings, nil)
	byPolicy := map[string][]*binding{}
	for _, b := range compiledBindings {
		byPolicy[b.Value.policyName] = append(byPolicy[b.Value.policyName], b.Value)
	}
	compiledPolicies, policyErr := p.compiledPolicies.Update(
		policies,
		func(e *objects.Entry) bool { return len(byPolicy[e.Name()]) > 0 },
	)
	next.err = cmp.Or(policyErr, bindingErr)
	entries := make([]matcher.Entry[*boundPolicy], len(compiledPolicies))
	for i, item := range compiledPolicies {
		entries[i] = matcher.Entry[*boundPolicy]{
			Criteria: item.Value.criteria,
			Value:    &boundPolicy{policy: item.Value, bindings: byPolicy[item.Value.name]},
		}
	}
	next.index = matcher.NewIndex(p.family, entries)
	p.current.Store(next)
	return next
}

// boundPairs returns the names of policies with the names of their bindings: {policy, binding}. It
// returns false if the content of a policy or binding is unknown.
func (p *policySet) boundPairs() (map[[2]string]bool, bool) {
	if _, err := p.index(); err != nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	policies := map[string]bool{}
	for _, item := range p.compiledPolicies.Items() {
		policies[item.Value.name] = true
	}
	pairs := map[[2]string]bool{}
	for _, item := range p.compiledBindings.Items() {
		if b := item.Value; policies[b.policyName] {
			pairs[[2]string{b.policyName, b.name}] = true
		}
	}
	return pairs, true
}
