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
	// customRetry is the delay before failed records of custom resources are written again.
	customRetry = time.Second
	// maxCustomWait is how long a write of a custom resource waits, at most, for the first attempt
	// to write the record of the resource.
	maxCustomWait = 15 * time.Second
)

// customRecord is the record of a custom resource and the state of writing it. Manager.mu protects
// it, except for record, which does not change.
type customRecord struct {
	record    record
	attempted chan struct{} // closed after the first attempt to write, or when the record is replaced
	written   bool          // an attempt has succeeded
	stale     bool          // must be written again
	err       error         // of the last attempt
}

// Define sets the current definitions. From now on, writes wait for the records of resources that
// are new or stored in another version than before.
func (m *Manager) Define(all []*apiextensionsv1.CustomResourceDefinition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	previous := m.custom
	m.custom = make(map[schema.GroupResource]*customRecord, len(all))
	for _, d := range all {
		record := &customRecord{record: newCustomRecord(d), attempted: make(chan struct{})}
		resource := record.record.resources[0]
		if before := previous[resource]; before != nil && reflect.DeepEqual(before.record, record.record) {
			record = before
		}
		m.custom[resource] = record
	}
	for resource, record := range previous {
		if m.custom[resource] != record {
			record.closeAttempted() // so that waiting writes wait for the replacement instead
		}
	}
	m.signal()
}

// closeAttempted closes c.attempted if it is still open. The caller holds Manager.mu.
func (c *customRecord) closeAttempted() {
	select {
	case <-c.attempted:
	default:
		close(c.attempted)
	}
}

// newCustomRecord returns the record for the resource of a definition.
func newCustomRecord(definition *apiextensionsv1.CustomResourceDefinition) record {
	rec := record{
		resources: []schema.GroupResource{{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}},
		owner: &metav1.OwnerReference{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind:       "CustomResourceDefinition",
			Name:       definition.Name,
			UID:        definition.UID,
		},
	}
	for i := range definition.Spec.Versions {
		crdVersion := &definition.Spec.Versions[i]
		version := schema.GroupVersion{Group: definition.Spec.Group, Version: crdVersion.Name}.String()
		rec.decodable = append(rec.decodable, version)
		if crdVersion.Served {
			rec.served = append(rec.served, version)
		}
		if crdVersion.Storage {
			rec.encoding = version
		}
	}
	return rec
}

// setOwner adds an owner reference to the definition of the record, and removes a reference to an
// earlier definition of the same name. It returns false if it changes nothing, because the record
// is of a built-in resource or the reference exists already.
func (r *record) setOwner(meta *metav1.ObjectMeta) bool {
	if r.owner == nil {
		return false
	}
	isOwner := func(ref metav1.OwnerReference) bool { return reflect.DeepEqual(ref, *r.owner) }
	if slices.ContainsFunc(meta.OwnerReferences, isOwner) {
		return false
	}
	meta.OwnerReferences = slices.DeleteFunc(meta.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == r.owner.APIVersion && ref.Kind == r.owner.Kind && ref.Name == r.owner.Name
	})
	meta.OwnerReferences = append(meta.OwnerReferences, *r.owner)
	return true
}

// markStale makes Run write the records of all custom resources again. Meanwhile, writes of these
// resources are not blocked.
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

// Run writes the records of custom resources, until ctx is canceled. It starts after the first call
// of Update.
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
	var toWrite []*customRecord
	m.mu.Lock()
	for _, record := range m.custom {
		if !record.written || record.stale {
			record.stale = false
			toWrite = append(toWrite, record)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, record := range toWrite {
		m.mu.RLock()
		replaced := m.custom[record.record.resources[0]] != record
		m.mu.RUnlock()
		if replaced {
			continue
		}
		err := m.publish(ctx, &record.record)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to update storage version for %v: %w", record.record.resources[0], err))
		}
		m.mu.Lock()
		record.written = record.written || err == nil
		record.stale = record.stale || err != nil
		record.err = err
		record.closeAttempted()
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// waitForCustom implements WritesBlocked for custom resources. It waits for the first attempt to
// write the record of a resource, and reports blocked if that attempt failed. A resource without a
// definition is not blocked, because none of its objects can be stored.
func (m *Manager) waitForCustom(ctx context.Context, groupResource schema.GroupResource) (reason error, blocked bool) {
	var limit <-chan time.Time
	for {
		m.mu.RLock()
		record := m.custom[groupResource]
		recorded := record == nil || record.written
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
		case <-record.attempted:
		case <-limit:
			return context.DeadlineExceeded, true
		case <-ctx.Done():
			return ctx.Err(), true
		}
		m.mu.RLock()
		isCurrent := m.custom[groupResource] == record
		reason := record.err
		written := record.written
		m.mu.RUnlock()
		if isCurrent { // otherwise, wait for the record that has replaced this one
			return reason, !written
		}
	}
}
