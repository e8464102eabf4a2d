package rbac

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/semantic"
	"binnacle/libs/sorted"
)

// Engine holds the policy. Use New; the zero value is not usable.
type Engine struct {
	mu        sync.Mutex // for writers only; leaf lock
	working   policyImage
	published atomic.Pointer[Snapshot]
}

// New returns an engine with an empty policy.
func New() *Engine {
	e := &Engine{working: newImage()}
	e.published.Store(&Snapshot{image: newImage()})
	return e
}

// policyImage is the policy: compiled roles and bindings, and the index.
type policyImage struct {
	roles    sorted.Map[string, *role]    // by roleKey
	bindings sorted.Map[string, *binding] // by bindingKey
	// index maps a subject at a scope to its bindings, by subjectKey. Published lists are not
	// changed.
	index    sorted.Map[string, []*binding]
	position Position
}

func newImage() policyImage {
	return policyImage{
		roles:    sorted.NewMap[string, *role](),
		bindings: sorted.NewMap[string, *binding](),
		index:    sorted.NewMap[string, []*binding](),
	}
}

// Snapshot is the policy at one time. It is immutable.
type Snapshot struct{ image policyImage }

// Position returns the revision, for each kind, up to which the snapshot includes all changes.
func (s *Snapshot) Position() Position { return s.image.position }

// binding is a compiled RoleBinding or ClusterRoleBinding.
type binding struct {
	namespace, name string // no namespace: a ClusterRoleBinding
	roleRef         rbacv1.RoleRef
	subjects        []rbacv1.Subject
	roleKey         string // roleKey of ref
	subjectKeys     []string
}

func roleKey(namespace, name string) string    { return namespace + "/" + name }
func bindingKey(namespace, name string) string { return namespace + "/" + name }

// subjectKey returns the key of a subject at a scope. kind is 'u' or 'g'. A service account is the
// user of its tokens.
func subjectKey(namespace string, kind byte, name string) string {
	b := make([]byte, 0, len(namespace)+len(name)+2)
	b = append(b, namespace...)
	b = append(b, '/', kind)
	return string(append(b, name...))
}

// compileBinding returns a binding with the keys of its role and its subjects.
func compileBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) *binding {
	b := &binding{namespace: namespace, name: name, roleRef: ref, subjects: subjects}
	switch ref.Kind {
	case KindClusterRole:
		b.roleKey = roleKey("", ref.Name)
	case KindRole:
		b.roleKey = roleKey(namespace, ref.Name)
	}
	for i := range subjects {
		if kind, user := userOf(&subjects[i], namespace); kind != 0 {
			b.subjectKeys = append(b.subjectKeys, subjectKey(namespace, kind, user))
		}
	}
	slices.Sort(b.subjectKeys)
	b.subjectKeys = slices.Compact(b.subjectKeys)
	return b
}

// userOf returns the user (kind 'u') or group (kind 'g') that a subject of a binding in a namespace
// denotes. The kind is 0 if the subject denotes neither.
func userOf(subject *rbacv1.Subject, namespace string) (kind byte, name string) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return 'u', subject.Name
	case rbacv1.GroupKind:
		return 'g', subject.Name
	case rbacv1.ServiceAccountKind:
		if subject.Namespace != "" {
			namespace = subject.Namespace
		}
		if namespace != "" {
			return 'u', "system:serviceaccount:" + namespace + ":" + subject.Name
		}
	}
	return 0, ""
}

// Kinds of roles and bindings.
const (
	KindRole               = "Role"
	KindClusterRole        = "ClusterRole"
	KindRoleBinding        = "RoleBinding"
	KindClusterRoleBinding = "ClusterRoleBinding"
)

// Update applies changes, publishes them together and returns which decisions they may affect.
// Objects given to the Tx must not change afterwards.
func (e *Engine) Update(set func(*Tx)) Change {
	e.mu.Lock()
	defer e.mu.Unlock()
	tx := &Tx{image: &e.working, ownLists: map[string]bool{}}
	set(tx)
	tx.change.Position = e.working.position
	e.published.Store(&Snapshot{image: policyImage{
		roles: e.working.roles.Copy(), bindings: e.working.bindings.Copy(), index: e.working.index.Copy(),
		position: e.working.position,
	}})
	return tx.change
}

// Snapshot returns the current policy.
func (e *Engine) Snapshot() *Snapshot { return e.published.Load() }

// Tx is a set of pending changes. It is valid during the call of Update.
type Tx struct {
	image    *policyImage
	ownLists map[string]bool // keys of index whose lists this Tx created, and may therefore change
	change   Change
}

// Advance sets the revision up to which all changes of a kind are included. Except through Clear it
// never decreases.
func (t *Tx) Advance(kind string, revision int64) { t.image.position.advance(kind, revision) }

// Set adds or replaces an object of one of the four kinds, and advances to its resourceVersion. It
// panics for other objects.
func (t *Tx) Set(obj metav1.Object) {
	kind := KindOf(obj)
	if rv, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64); err == nil {
		t.Advance(kind, rv)
	}
	switch o := obj.(type) {
	case *rbacv1.Role:
		t.setRole(o.Namespace, o.Name, compileRole(o.Rules))
	case *rbacv1.ClusterRole:
		r := compileRole(o.Rules)
		r.labels = o.Labels
		r.aggregation = o.AggregationRule
		t.setRole("", o.Name, r)
	case *rbacv1.RoleBinding:
		t.setBinding(compileBinding(o.Namespace, o.Name, o.RoleRef, o.Subjects))
	case *rbacv1.ClusterRoleBinding:
		t.setBinding(compileBinding("", o.Name, o.RoleRef, o.Subjects))
	}
}

// KindOf returns the kind of an object of a policy. It panics for other objects.
func KindOf(obj metav1.Object) string {
	switch obj.(type) {
	case *rbacv1.Role:
		return KindRole
	case *rbacv1.ClusterRole:
		return KindClusterRole
	case *rbacv1.RoleBinding:
		return KindRoleBinding
	case *rbacv1.ClusterRoleBinding:
		return KindClusterRoleBinding
	}
	panic(fmt.Sprintf("rbac: %T is no part of a policy", obj))
}

// Delete removes an object if it exists.
func (t *Tx) Delete(kind, namespace, name string) {
	switch kind {
	case KindRole, KindClusterRole:
		if _, ok := t.image.roles.Delete(roleKey(namespace, name)); ok {
			t.change.add(namespace)
		}
	case KindRoleBinding, KindClusterRoleBinding:
		if t.deleteBinding(namespace, name) != nil {
			t.change.add(namespace)
		}
	}
}

// Clear removes all objects of a kind and resets its position. The complete state of the kind must
// follow, possibly from a store whose revision went backwards.
func (t *Tx) Clear(kind string) {
	if i := positionIndex(kind); i >= 0 {
		t.image.position[i] = 0
	}
	var keys []string
	collect := func(key string) bool {
		if namespaced := key[0] != '/'; namespaced == (kind == KindRole || kind == KindRoleBinding) {
			keys = append(keys, key)
		}
		return true
	}
	switch kind {
	case KindRole, KindClusterRole:
		t.image.roles.Scan(func(k string, _ *role) bool { return collect(k) })
	case KindRoleBinding, KindClusterRoleBinding:
		t.image.bindings.Scan(func(k string, _ *binding) bool { return collect(k) })
	}
	if len(keys) > 0 { // objects may be deleted, or differ at the same resourceVersion
		t.change.All = true
	}
	for _, key := range keys {
		namespace, name, _ := strings.Cut(key, "/")
		t.Delete(kind, namespace, name)
	}
}

func (t *Tx) setRole(namespace, name string, r *role) {
	old, ok := t.image.roles.Set(roleKey(namespace, name), r)
	if !ok || !semantic.Equal(old.rules, r.rules) || !semantic.Equal(old.aggregation, r.aggregation) {
		t.change.add(namespace)
	}
}

// setBinding adds or replaces a binding and updates the index.
func (t *Tx) setBinding(b *binding) {
	old := t.deleteBinding(b.namespace, b.name)
	if old == nil || old.roleRef != b.roleRef || !semantic.Equal(old.subjects, b.subjects) {
		t.change.add(b.namespace)
	}
	t.image.bindings.Set(bindingKey(b.namespace, b.name), b)
	for _, key := range b.subjectKeys {
		list, _ := t.image.index.Get(key)
		if !t.ownLists[key] {
			list = slices.Clone(list)
			t.ownLists[key] = true
		}
		t.image.index.Set(key, append(list, b))
	}
}

// deleteBinding removes a binding and returns it, or nil if there is none.
func (t *Tx) deleteBinding(namespace, name string) *binding {
	old, ok := t.image.bindings.Delete(bindingKey(namespace, name))
	if !ok {
		return nil
	}
	for _, key := range old.subjectKeys {
		list, _ := t.image.index.Get(key)
		remaining := make([]*binding, 0, len(list))
		for _, b := range list {
			if b != old {
				remaining = append(remaining, b)
			}
		}
		if len(remaining) == 0 {
			t.image.index.Delete(key)
			delete(t.ownLists, key)
			continue
		}
		t.ownLists[key] = true
		t.image.index.Set(key, remaining)
	}
	return old
}
