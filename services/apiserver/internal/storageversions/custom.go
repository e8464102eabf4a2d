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

	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
)

const (
	// customRetry is when what failed of custom resources is tried again.
	customRetry = time.Second
	// customPatience is how long a write waits for what is said of its resource first.
	customPatience = 15 * time.Second
)

// custom is what is said of a custom resource.
type custom struct {
	place place
	tried chan struct{} // closed when it was said, or failed, for the first time
	said  bool
	stale bool  // it is to be said again
	err   error // of the last try
}

// Define takes up the definitions that are there now. Writes of what is new, or is stored
// in another version than before, wait from now on.
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
			c.wake() // who waits looks at what came instead
		}
	}
	m.look()
}

// wake tells that it was tried, or is no more. The lock is held.
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

// own enters whose an object is, so that it goes with its definition; false when that is
// there. A definition of the same name that was before owns it no more.
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

// again has everything said of custom resources again, which holds nobody.
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
	default: // it is to look already
	}
}

// Run says of custom resources what this replica stores, from the first Update on.
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
			log.Warn("the storage versions of custom resources could not be written; trying again", "error", err)
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
		err := m.say(ctx, &c.place)
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

// heldCustom waits for the first try of a resource. One that is not defined any more is
// not held: nothing is stored of it.
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
