package storageversions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// Manager records the versions that this replica stores. It is safe for concurrent use.
type Manager struct {
	api      *internalclient.Client
	identity string
	now      func() time.Time
	records  []record
	// unserved holds the resources that this replica knows but does not serve.
	unserved []schema.GroupResource
	complete atomic.Bool

	mu      sync.RWMutex // leaf lock
	pending map[schema.GroupResource]error
	custom  map[schema.GroupResource]*customRecord
	changed chan struct{} // signals Run to process custom
	started chan struct{} // closed when the server may write
	begin   sync.Once
}

// record describes the resources of a storage prefix and their versions.
type record struct {
	resources []schema.GroupResource // the first one names the record
	encoding  string
	decodable []string
	served    []string
	owner     *metav1.OwnerReference // nil for built-in resources
}

// errNotAttempted is the error of resources before the first attempt.
var errNotAttempted = errors.New("<nil>")

// New returns a Manager for the stored kinds of a catalog. served holds those of them that are
// served.
func New(api *internalclient.Client, identity string, catalog, served *registry.Catalog, now func() time.Time) *Manager {
	m := &Manager{
		api: api, identity: identity, now: now, pending: map[schema.GroupResource]error{}, custom: map[schema.GroupResource]*customRecord{},
		changed: make(chan struct{}, 1), started: make(chan struct{}),
	}
	isServed := map[schema.GroupVersionResource]bool{}
	for _, k := range served.Kinds() {
		isServed[k.GVR()] = true
	}
	byPrefix := map[string]*record{}
	for _, k := range catalog.Kinds() {
		if k.Virtual {
			continue
		}
		rec := byPrefix[k.Stored.Prefix]
		if rec == nil {
			rec = &record{}
			byPrefix[k.Stored.Prefix] = rec
		}
		version := k.GVR().GroupVersion()
		if k.Stored.ToStored == nil { // stored as served, or in the version that it names
			rec.encoding = version.String()
		}
		if !k.Stored.Version.Empty() {
			rec.encoding = k.Stored.Version.String()
		}
		rec.decodable = append(rec.decodable, version.String())
		if isServed[k.GVR()] {
			rec.served = append(rec.served, version.String())
		}
		if !slices.Contains(rec.resources, k.StoredGroupResource()) {
			rec.resources = append(rec.resources, k.StoredGroupResource())
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		rec := byPrefix[prefix]
		slices.SortFunc(rec.resources, func(a, b schema.GroupResource) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
		})
		if !slices.Contains(rec.decodable, rec.encoding) {
			rec.decodable = append(rec.decodable, rec.encoding)
		}
		if len(rec.served) == 0 { // no client can write it
			m.unserved = append(m.unserved, rec.resources[0])
			continue
		}
		m.records = append(m.records, *rec)
		for _, r := range rec.resources {
			m.pending[r] = errNotAttempted
		}
	}
	return m
}

// Update writes the records of all built-in resources. An error for one does not stop the others.
// Run then writes the records of custom resources.
func (m *Manager) Update(ctx context.Context) error {
	m.begin.Do(func() { close(m.started) })
	defer m.markStale()
	var errs []error
	for i := range m.records {
		rec := &m.records[i]
		err := m.publish(ctx, rec)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to update storage version for %v: %w", rec.resources[0], err))
		}
		m.mu.Lock()
		for _, r := range rec.resources {
			if err == nil {
				delete(m.pending, r)
			} else if _, ok := m.pending[r]; ok {
				m.pending[r] = err
			}
		}
		m.mu.Unlock()
		if ctx.Err() != nil {
			break
		}
	}
	if err := m.withdraw(ctx); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		m.complete.Store(true)
	}
	return errors.Join(errs...)
}

// WritesBlocked reports whether writes of a resource must wait, and the last error. For a custom
// resource that has just been defined, WritesBlocked itself waits for a bounded time.
func (m *Manager) WritesBlocked(ctx context.Context, r schema.GroupResource, isCustom bool) (reason error, held bool) {
	if isCustom {
		return m.waitForCustom(ctx, r)
	}
	if m.complete.Load() {
		return nil, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	reason, held = m.pending[r]
	return reason, held
}

// maxAttempts is how many write conflicts on one object are retried. All replicas write it.
const maxAttempts = 20

// publish writes a record. It creates the object if it does not exist.
func (m *Manager) publish(ctx context.Context, rec *record) error {
	name, ref := nameOf(rec.resources[0]), collection()
	var err error
	for range maxAttempts {
		created := &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if rec.owner != nil {
			created.OwnerReferences = []metav1.OwnerReference{*rec.owner}
		}
		// A creation ignores the status, which is a subresource.
		if err = internalclient.Put(ctx, m.api, ref, created, func(live *apiserverinternalv1alpha1.StorageVersion) bool { return rec.setOwner(&live.ObjectMeta) }); err != nil {
			return err
		}
		var live apiserverinternalv1alpha1.StorageVersion
		if err = m.api.Get(ctx, ref.Named(name), &live); err != nil {
			return err
		}
		if !m.setServerVersion(&live, rec) {
			return nil
		}
		if err = m.api.Update(ctx, ref.Named(name).Subresource("status"), &live, nil); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

// setServerVersion records the versions of this replica in v. It returns false if nothing changes.
func (m *Manager) setServerVersion(v *apiserverinternalv1alpha1.StorageVersion, rec *record) bool {
	s := &v.Status
	before := s.DeepCopy()
	ours := apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: m.identity, EncodingVersion: rec.encoding, DecodableVersions: rec.decodable, ServedVersions: rec.served}
	if i := slices.IndexFunc(s.StorageVersions, func(o apiserverinternalv1alpha1.ServerStorageVersion) bool { return o.APIServerID == m.identity }); i >= 0 {
		s.StorageVersions[i] = ours
	} else {
		s.StorageVersions = append(s.StorageVersions, ours)
	}
	m.setCommonVersion(v, before)
	return !reflect.DeepEqual(before, s)
}

// setCommonVersion sets the fields that follow from the records of all replicas. At least one
// record must exist.
func (m *Manager) setCommonVersion(v *apiserverinternalv1alpha1.StorageVersion, before *apiserverinternalv1alpha1.StorageVersionStatus) {
	s := &v.Status
	s.CommonEncodingVersion = &s.StorageVersions[0].EncodingVersion
	for i := range s.StorageVersions {
		if s.StorageVersions[i].EncodingVersion != s.StorageVersions[0].EncodingVersion {
			s.CommonEncodingVersion = nil
		}
	}
	m.setEqualCondition(v, before)
}

// setEqualCondition sets the condition that reports whether all replicas store the same version.
// Its transition time changes with its status and with the common version.
func (m *Manager) setEqualCondition(v *apiserverinternalv1alpha1.StorageVersion, before *apiserverinternalv1alpha1.StorageVersionStatus) {
	c := apiserverinternalv1alpha1.StorageVersionCondition{
		Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse, ObservedGeneration: v.Generation,
		LastTransitionTime: metav1.NewTime(m.now()), Reason: "CommonEncodingVersionUnset", Message: "Common encoding version unset",
	}
	common := v.Status.CommonEncodingVersion
	if common != nil {
		c.Status = apiserverinternalv1alpha1.ConditionTrue
		c.Reason = "CommonEncodingVersionSet"
		c.Message = "Common encoding version set"
	}
	for i := range v.Status.Conditions {
		if existing := &v.Status.Conditions[i]; existing.Type == c.Type {
			other := before.CommonEncodingVersion != nil && common != nil && *before.CommonEncodingVersion != *common
			if existing.Status == c.Status && !other {
				c.LastTransitionTime = existing.LastTransitionTime
			}
			*existing = c
			return
		}
	}
	v.Status.Conditions = append(v.Status.Conditions, c)
}
