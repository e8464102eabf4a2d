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

// Manager records the versions in which this replica stores resources. It is safe for concurrent
// use.
type Manager struct {
	api      *internalclient.Client
	identity string // of this replica
	now      func() time.Time
	records  []record // of built-in resources
	// unserved holds the built-in resources that this replica knows but does not serve.
	unserved []schema.GroupResource
	complete atomic.Bool // all records of built-in resources were written

	mu sync.RWMutex // leaf lock
	// pending holds the built-in resources whose records were not written yet, and the last error.
	pending map[schema.GroupResource]error
	custom  map[schema.GroupResource]*customRecord

	changed   chan struct{} // receives a value when Run must write records of custom resources
	started   chan struct{} // closed at the first call of Update
	startOnce sync.Once
}

// record holds what this replica records about the resources that share a key prefix. The versions
// are group versions, such as "apps/v1".
type record struct {
	resources []schema.GroupResource // the first one names the record
	encoding  string                 // version in which objects are stored
	decodable []string               // versions that this replica can decode
	served    []string               // versions that clients can use
	owner     *metav1.OwnerReference // the definition; nil for built-in resources
}

// errNotAttempted is the error of resources whose records were not attempted yet. The text is the
// one that kube-apiserver reports.
var errNotAttempted = errors.New("<nil>")

// New returns a Manager for the stored kinds of a catalog. served holds the kinds that this replica
// serves. identity is the name of the replica.
func New(api *internalclient.Client, identity string, catalog, served *registry.Catalog, now func() time.Time) *Manager {
	manager := &Manager{
		api:      api,
		identity: identity,
		now:      now,
		pending:  map[schema.GroupResource]error{},
		custom:   map[schema.GroupResource]*customRecord{},
		changed:  make(chan struct{}, 1),
		started:  make(chan struct{}),
	}

	// 1. Collect the kinds that share a key prefix into one record.
	isServed := map[schema.GroupVersionResource]bool{}
	for _, kind := range served.Kinds() {
		isServed[kind.GVR()] = true
	}
	byPrefix := map[string]*record{}
	for _, kind := range catalog.Kinds() {
		if kind.Virtual {
			continue
		}
		rec := byPrefix[kind.Stored.Prefix]
		if rec == nil {
			rec = &record{}
			byPrefix[kind.Stored.Prefix] = rec
		}
		version := kind.GVR().GroupVersion()
		if kind.Stored.ToStored == nil { // this version is stored without conversion
			rec.encoding = version.String()
		}
		if !kind.Stored.Version.Empty() { // unless the kind names another one
			rec.encoding = kind.Stored.Version.String()
		}
		rec.decodable = append(rec.decodable, version.String())
		if isServed[kind.GVR()] {
			rec.served = append(rec.served, version.String())
		}
		if !slices.Contains(rec.resources, kind.StoredGroupResource()) {
			rec.resources = append(rec.resources, kind.StoredGroupResource())
		}
	}

	// 2. Complete the records, and separate the resources that are not served.
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		rec := byPrefix[prefix]
		slices.SortFunc(rec.resources, func(a, b schema.GroupResource) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
		})
		if !slices.Contains(rec.decodable, rec.encoding) {
			rec.decodable = append(rec.decodable, rec.encoding)
		}
		if len(rec.served) == 0 { // no client can write such objects
			manager.unserved = append(manager.unserved, rec.resources[0])
			continue
		}
		manager.records = append(manager.records, *rec)
		for _, r := range rec.resources {
			manager.pending[r] = errNotAttempted
		}
	}
	return manager
}

// Update writes the records of all built-in resources, and makes Run write the records of custom
// resources. An error for one resource does not prevent the other writes. Callers repeat Update
// periodically.
func (m *Manager) Update(ctx context.Context) error {
	m.startOnce.Do(func() { close(m.started) })
	defer m.markStale()
	var errs []error
	for i := range m.records {
		rec := &m.records[i]
		err := m.publish(ctx, rec)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to update storage version for %v: %w", rec.resources[0], err))
		}
		m.mu.Lock()
		for _, resource := range rec.resources {
			if err == nil {
				delete(m.pending, resource)
			} else if _, ok := m.pending[resource]; ok {
				m.pending[resource] = err
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

// WritesBlocked reports whether writes of a resource must be rejected because its record was not
// written yet, and the last error. For a custom resource that has just been defined, WritesBlocked
// first waits, for at most maxCustomWait.
func (m *Manager) WritesBlocked(ctx context.Context, resource schema.GroupResource, isCustom bool) (reason error, blocked bool) {
	if isCustom {
		return m.waitForCustom(ctx, resource)
	}
	if m.complete.Load() {
		return nil, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	reason, blocked = m.pending[resource]
	return reason, blocked
}

// maxAttempts is the maximum number of attempts to write one object. Conflicts are common, because
// all replicas write the same objects.
const maxAttempts = 20

// publish writes a record of this replica to the StorageVersion object. It creates the object if it
// does not exist.
func (m *Manager) publish(ctx context.Context, rec *record) error {
	name, ref := nameOf(rec.resources[0]), collection()
	var err error
	for range maxAttempts {
		created := &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if rec.owner != nil {
			created.OwnerReferences = []metav1.OwnerReference{*rec.owner}
		}
		// The status is written separately below, because a creation ignores it.
		setOwner := func(live *apiserverinternalv1alpha1.StorageVersion) bool { return rec.setOwner(&live.ObjectMeta) }
		if err = internalclient.Put(ctx, m.api, ref, created, setOwner); err != nil {
			return err
		}
		var live apiserverinternalv1alpha1.StorageVersion
		if err = m.api.Get(ctx, ref.Named(name), &live); err != nil {
			return err
		}
		if !m.setServerVersion(&live, rec) {
			return nil
		}
		err = m.api.Update(ctx, ref.Named(name).Subresource("status"), &live, nil)
		if isRace := apierrors.IsConflict(err) || apierrors.IsNotFound(err); !isRace {
			return err
		}
	}
	return err
}

// setServerVersion sets the versions of this replica in the status of a StorageVersion. It returns
// false if they are up to date.
func (m *Manager) setServerVersion(storageVersion *apiserverinternalv1alpha1.StorageVersion, rec *record) bool {
	status := &storageVersion.Status
	before := status.DeepCopy()
	serverVersion := apiserverinternalv1alpha1.ServerStorageVersion{
		APIServerID:       m.identity,
		EncodingVersion:   rec.encoding,
		DecodableVersions: rec.decodable,
		ServedVersions:    rec.served,
	}
	isOwn := func(o apiserverinternalv1alpha1.ServerStorageVersion) bool { return o.APIServerID == m.identity }
	if i := slices.IndexFunc(status.StorageVersions, isOwn); i >= 0 {
		status.StorageVersions[i] = serverVersion
	} else {
		status.StorageVersions = append(status.StorageVersions, serverVersion)
	}
	m.setCommonVersion(storageVersion, before)
	return !reflect.DeepEqual(before, status)
}

// setCommonVersion sets the status fields that follow from the records of all replicas: the common
// encoding version and the condition AllEncodingVersionsEqual. The status must contain at least one
// record. before is the status before the change.
func (m *Manager) setCommonVersion(
	storageVersion *apiserverinternalv1alpha1.StorageVersion,
	before *apiserverinternalv1alpha1.StorageVersionStatus,
) {
	s := &storageVersion.Status
	s.CommonEncodingVersion = &s.StorageVersions[0].EncodingVersion
	for i := range s.StorageVersions {
		if s.StorageVersions[i].EncodingVersion != s.StorageVersions[0].EncodingVersion {
			s.CommonEncodingVersion = nil
		}
	}
	m.setEqualCondition(storageVersion, before)
}

// setEqualCondition sets the condition AllEncodingVersionsEqual, which reports whether all replicas
// store the same version. Its transition time changes when its status or the common version
// changes.
func (m *Manager) setEqualCondition(
	storageVersion *apiserverinternalv1alpha1.StorageVersion,
	before *apiserverinternalv1alpha1.StorageVersionStatus,
) {
	condition := apiserverinternalv1alpha1.StorageVersionCondition{
		Type:               apiserverinternalv1alpha1.AllEncodingVersionsEqual,
		Status:             apiserverinternalv1alpha1.ConditionFalse,
		ObservedGeneration: storageVersion.Generation,
		LastTransitionTime: metav1.NewTime(m.now()),
		Reason:             "CommonEncodingVersionUnset",
		Message:            "Common encoding version unset",
	}
	common := storageVersion.Status.CommonEncodingVersion
	if common != nil {
		condition.Status = apiserverinternalv1alpha1.ConditionTrue
		condition.Reason = "CommonEncodingVersionSet"
		condition.Message = "Common encoding version set"
	}
	for i := range storageVersion.Status.Conditions {
		if existing := &storageVersion.Status.Conditions[i]; existing.Type == condition.Type {
			commonChanged := before.CommonEncodingVersion != nil && common != nil && *before.CommonEncodingVersion != *common
			if existing.Status == condition.Status && !commonChanged {
				condition.LastTransitionTime = existing.LastTransitionTime
			}
			*existing = condition
			return
		}
	}
	storageVersion.Status.Conditions = append(storageVersion.Status.Conditions, condition)
}
