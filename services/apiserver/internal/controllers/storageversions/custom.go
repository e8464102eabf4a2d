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
	// maxCustomWait is how long a write of a custom resource waits for its record.
	maxCustomWait = 15 * time.Second
)

// customRecord is the record of a custom resource and its state.
type customRecord struct {
	record    record
	attempted chan struct{} // closed after the first attempt, or when replaced
	written   bool
	stale     bool  // must be written again
	err       error // of the last attempt
}

// Define sets the current definitions. From now on, writes wait for the records of resources that
// are new or stored in another version than before.
func (m *Manager) Define(all []*apiextensionsv1.CustomResourceDefinition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	previous := m.custom
	m.custom = make(map[schema.GroupResource]*customRecord, len(all))
	for _, d := range all {
		c := &customRecord{record: recordOf(d), attempted: make(chan struct{})}
		r := c.record.resources[0]
		if before := previous[r]; before != nil && reflect.DeepEqual(before.record, c.record) {
			c = before
		}
		m.custom[r] = c
	}
	for r, c := range previous {
		if m.custom[r] != c {
			c.wake() // waiting writes check the replacement
		}
	}
	m.signal()
}

// wake signals that a write of the record was attempted, or that the record was replaced. The
// caller holds mu.
func (c *customRecord) wake() {
	select {
	case <-c.attempted:
	default:
		close(c.attempted)
	}
}

// recordOf returns the record of a definition.
func recordOf(d *apiextensionsv1.CustomResourceDefinition) record {
	rec := record{
		resources: []schema.GroupResource{{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}},
		owner:     &metav1.OwnerReference{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition", Name: d.Name, UID: d.UID},
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		version := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}.String()
		rec.decodable = append(rec.decodable, version)
		if v.Served {
			rec.served = append(rec.served, version)
		}
		if v.Storage {
			rec.encoding = version
		}
	}
	return rec
}

// setOwner adds an owner reference to the definition, and removes a reference to an earlier definition
// of the same name. It returns false if the reference exists already.
func (r *record) setOwner(o *metav1.ObjectMeta) bool {
	if r.owner == nil || slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool { return reflect.DeepEqual(ref, *r.owner) }) {
		return false
	}
	o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == r.owner.APIVersion && ref.Kind == r.owner.Kind && ref.Name == r.owner.Name
	})
	o.OwnerReferences = append(o.OwnerReferences, *r.owner)
	return true
}

// markStale marks the records of all custom resources for rewriting. This does not hold writes.
func (m *Manager) markStale() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.custom {
		c.stale = true
	}
	m.signal()
}

// signal wakes Run.
func (m *Manager) signal() {
	select {
	case m.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// Run writes the records of custom resources after the first Update, until ctx ends.
func (m *Manager) Run(ctx context.Context, log *slog.Logger) error {
	select {
	case <-m.started:
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
		if err := m.writeCustom(ctx); err != nil && ctx.Err() == nil {
			log.Warn("failed to update the storage versions of custom resources; retrying", "error", err)
			retry.Reset(customRetry)
		}
	}
}

// writeCustom writes the records of custom resources that are new or marked as stale.
func (m *Manager) writeCustom(ctx context.Context) error {
	var waiting []*customRecord
	m.mu.Lock()
	for _, c := range m.custom {
		if !c.written || c.stale {
			c.stale = false
			waiting = append(waiting, c)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, c := range waiting {
		m.mu.RLock()
		replaced := m.custom[c.record.resources[0]] != c
		m.mu.RUnlock()
		if replaced {
			continue
		}
		err := m.publish(ctx, &c.record)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to update storage version for %v: %w", c.record.resources[0], err))
		}
		m.mu.Lock()
		c.written = c.written || err == nil
		c.stale = c.stale || err != nil
		c.err = err
		c.wake()
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// waitForCustom waits for the first attempt to record a resource. A resource without a definition
// is not held: none of its objects can be stored.
func (m *Manager) waitForCustom(ctx context.Context, r schema.GroupResource) (reason error, held bool) {
	var limit <-chan time.Time
	for {
		m.mu.RLock()
		c := m.custom[r]
		recorded := c == nil || c.written
		m.mu.RUnlock()
		if recorded {
			return nil, false
		}
		if limit == nil {
			timer := time.NewTimer(maxCustomWait)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-c.attempted:
		case <-limit:
			return context.DeadlineExceeded, true
		case <-ctx.Done():
			return ctx.Err(), true
		}
		m.mu.RLock()
		same := m.custom[r] == c
		reason := c.err
		written := c.written
		m.mu.RUnlock()
		if same {
			return reason, !written
		}
	}
}
