package storageversions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

const (
	// customRetry is the delay before a failed record of a custom resource is retried.
	customRetry = time.Second
	// customPatience is how long a write of a custom resource waits for its record.
	customPatience = 15 * time.Second
)

// custom is the state of a custom resource's record.
type custom struct {
	place place
	tried chan struct{} // closed after the first attempt, or when replaced
	said  bool
	stale bool  // must be written again
	err   error // of the last attempt
}

// Define sets the current definitions. From now on, writes wait for the records of resources that
// are new or stored in another version than before.
func (m *Manager) Define(all []*apiextensionsv1.CustomResourceDefinition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.custom
	m.custom = make(map[schema.GroupResource]*custom, len(all))
	for _, d := range all {
		c := &custom{place: placeOf(d), tried: make(chan struct{})}
		r := c.place.resources[0]
		if before := had[r]; before != nil && reflect.DeepEqual(before.place, c.place) {
			c = before
		}
		m.custom[r] = c
	}
	for r, c := range had {
		if m.custom[r] != c {
			c.wake() // waiting writes check the replacement
		}
	}
	m.look()
}

// wake signals that a record was attempted or replaced. The caller holds mu.
func (c *custom) wake() {
	select {
	case <-c.tried:
	default:
		close(c.tried)
	}
}

func placeOf(d *apiextensionsv1.CustomResourceDefinition) place {
	p := place{
		resources: []schema.GroupResource{{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}},
		owner:     &metav1.OwnerReference{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition", Name: d.Name, UID: d.UID},
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		version := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}.String()
		p.decodable = append(p.decodable, version)
		if v.Served {
			p.served = append(p.served, version)
		}
		if v.Storage {
			p.encoding = version
		}
	}
	return p
}

// own adds the owner reference to the definition. It returns false if the reference exists. It
// removes a reference to an earlier definition of the same name.
func (p *place) own(o *metav1.ObjectMeta) bool {
	if p.owner == nil || slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return reflect.DeepEqual(r, *p.owner) }) {
		return false
	}
	o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.APIVersion == p.owner.APIVersion && r.Kind == p.owner.Kind && r.Name == p.owner.Name
	})
	o.OwnerReferences = append(o.OwnerReferences, *p.owner)
	return true
}

// again marks the records of all custom resources for rewriting. This does not hold writes.
func (m *Manager) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.custom {
		c.stale = true
	}
	m.look()
}

func (m *Manager) look() {
	select {
	case m.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// Run writes the records of custom resources after the first Update, until ctx ends.
func (m *Manager) Run(ctx context.Context, log *slog.Logger) error {
	select {
	case <-m.begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-m.changed:
		case <-retry.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := m.sayCustom(ctx); err != nil && ctx.Err() == nil {
			log.Warn("failed to update the storage versions of custom resources; retrying", "error", err)
			retry.Reset(customRetry)
		}
	}
}

func (m *Manager) sayCustom(ctx context.Context) error {
	var waiting []*custom
	m.mu.Lock()
	for _, c := range m.custom {
		if !c.said || c.stale {
			c.stale = false
			waiting = append(waiting, c)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, c := range waiting {
		m.mu.RLock()
		gone := m.custom[c.place.resources[0]] != c
		m.mu.RUnlock()
		if gone {
			continue
		}
		err := m.publish(ctx, &c.place)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to update storage version for %v: %w", c.place.resources[0], err))
		}
		m.mu.Lock()
		c.said, c.stale, c.err = c.said || err == nil, c.stale || err != nil, err
		c.wake()
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// heldCustom waits for the first attempt to record a resource. A resource without a definition is
// not held: none of its objects can be stored.
func (m *Manager) heldCustom(ctx context.Context, r schema.GroupResource) (why error, held bool) {
	var limit <-chan time.Time
	for {
		m.mu.RLock()
		c := m.custom[r]
		free := c == nil || c.said
		m.mu.RUnlock()
		if free {
			return nil, false
		}
		if limit == nil {
			timer := time.NewTimer(customPatience)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-c.tried:
		case <-limit:
			return context.DeadlineExceeded, true
		case <-ctx.Done():
			return ctx.Err(), true
		}
		m.mu.RLock()
		same, why, said := m.custom[r] == c, c.err, c.said
		m.mu.RUnlock()
		if same {
			return why, !said
		}
	}
}
