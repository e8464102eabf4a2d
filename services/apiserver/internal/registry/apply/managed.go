package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

const fieldsV1 = "FieldsV1"

// owner identifies an entry in managedFields. For an applier it does not include the version: an
// applier has one entry, regardless of the version it last used.
type owner struct {
	Manager     string                            `json:"manager,omitempty"`
	Operation   metav1.ManagedFieldsOperationType `json:"operation,omitempty"`
	APIVersion  string                            `json:"apiVersion,omitempty"`
	Subresource string                            `json:"subresource,omitempty"`
}

func (o owner) isApply() bool { return o.Operation == metav1.ManagedFieldsOperationApply }

// id encodes the owner as a manager name for the merge library, which orders conflicts by it.
func (o owner) id() string {
	b, _ := json.Marshal(o) // only strings: cannot fail
	return string(b)
}

// ownerOf decodes an owner that id encoded.
func ownerOf(id string) (o owner) {
	_ = json.Unmarshal([]byte(id), &o) // made by id
	return o
}

// fieldSet is a set of fields with its encoding, if known. It is immutable.
type fieldSet struct {
	*fieldpath.Set
	raw []byte
}

// entry holds the fields of an owner.
type entry struct {
	fieldSet
	version string
	time    *metav1.Time
}

// managed holds all entries of an object.
type managed map[owner]*entry

// requestsReset reports whether a list requests the removal of all ownership: it is empty but not
// nil, or holds one empty entry. Documents cannot have an empty list: it is removed when their
// metadata is normalized, as in Kubernetes.
func requestsReset(list []metav1.ManagedFieldsEntry) bool {
	if len(list) != 1 {
		return list != nil && len(list) == 0
	}
	e := list[0]
	return e.Manager == "" && e.Operation == "" && e.APIVersion == "" && e.Time == nil &&
		e.FieldsType == "" && e.FieldsV1 == nil && e.Subresource == ""
}

var (
	errOperation = errors.New("operation must be `Apply` or `Update`")
	errVersion   = errors.New("apiVersion must not be empty")
)

// decode decodes the managedFields of an object of a kind.
func (v *view) decode(list []metav1.ManagedFieldsEntry) (managed, error) {
	entries := make(managed, len(list))
	for i := range list {
		managedEntry := &list[i]
		entryOwner := owner{Manager: managedEntry.Manager, Operation: managedEntry.Operation, Subresource: managedEntry.Subresource}
		switch managedEntry.Operation {
		case metav1.ManagedFieldsOperationApply:
		case metav1.ManagedFieldsOperationUpdate:
			entryOwner.APIVersion = managedEntry.APIVersion
		default:
			return nil, errOperation
		}
		switch {
		case managedEntry.APIVersion == "":
			return nil, errVersion
		case managedEntry.FieldsType == "":
			return nil, fmt.Errorf("missing fieldsType in managed fields entry %d", i)
		case managedEntry.FieldsType != fieldsV1:
			return nil, fmt.Errorf("invalid fieldsType %q in managed fields entry %d", managedEntry.FieldsType, i)
		}
		raw := []byte("{}")
		if managedEntry.FieldsV1 != nil {
			raw = managedEntry.FieldsV1.Raw
		}
		set, err := v.inVersion(managedEntry.APIVersion).parseFieldSet(raw)
		if err != nil {
			return nil, fmt.Errorf("managed fields entry %d: %w", i, err)
		}
		entries[entryOwner] = &entry{fieldSet: set, version: managedEntry.APIVersion, time: managedEntry.Time}
	}
	return entries, nil
}

// Check returns an error if managedFields of the kind are invalid.
func (m *Manager) Check(list []metav1.ManagedFieldsEntry) error {
	_, err := m.decode(list)
	return err
}

// decodeOrNone decodes a list like decode. For an invalid list it returns no entries.
func (v *view) decodeOrNone(list []metav1.ManagedFieldsEntry) managed {
	entries, err := v.decode(list)
	if err != nil {
		return managed{}
	}
	return entries
}

// encode returns managedFields ordered by operation, time and owner.
func (m managed) encode() ([]metav1.ManagedFieldsEntry, error) {
	if len(m) == 0 {
		return nil, nil
	}
	list := make([]metav1.ManagedFieldsEntry, 0, len(m))
	for owner, entry := range m {
		raw := entry.raw
		if raw == nil {
			var err error
			if raw, err = entry.ToJSON(); err != nil {
				return nil, fmt.Errorf("encode the fields of %s: %w", owner.Manager, err)
			}
		}
		list = append(list, metav1.ManagedFieldsEntry{
			Manager:     owner.Manager,
			Operation:   owner.Operation,
			APIVersion:  entry.version,
			Time:        entry.time,
			FieldsType:  fieldsV1,
			FieldsV1:    &metav1.FieldsV1{Raw: raw},
			Subresource: owner.Subresource,
		})
	}
	slices.SortFunc(list, func(first, second metav1.ManagedFieldsEntry) int {
		if c := strings.Compare(string(first.Operation), string(second.Operation)); c != 0 {
			return c
		}
		if x, y := unixSeconds(first.Time), unixSeconds(second.Time); x != y {
			return int(x - y)
		}
		if c := strings.Compare(first.Manager, second.Manager); c != 0 {
			return c
		}
		if c := strings.Compare(first.APIVersion, second.APIVersion); c != 0 {
			return c
		}
		return strings.Compare(first.Subresource, second.Subresource)
	})
	return list, nil
}

// unixSeconds returns a time in seconds, or 0 for nil.
func unixSeconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// EqualExceptTimes reports whether two lists are equal except for their times.
func EqualExceptTimes(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool {
		return x.Manager == y.Manager && x.Operation == y.Operation && x.APIVersion == y.APIVersion && x.FieldsType == y.FieldsType &&
			x.Subresource == y.Subresource && bytes.Equal(rawOf(x), rawOf(y))
	})
}

// rawOf returns the encoded field set of an entry, or nil.
func rawOf(e metav1.ManagedFieldsEntry) []byte {
	if e.FieldsV1 == nil {
		return nil
	}
	return e.FieldsV1.Raw
}

// minus returns the set without the fields of another. It returns s itself if they are disjoint.
func (s fieldSet) minus(other *fieldpath.Set) fieldSet {
	if other.Empty() {
		return s
	}
	difference := s.Difference(other)
	if s.raw != nil && difference.Equals(s.Set) {
		return s
	}
	return fieldSet{Set: difference}
}

// plus returns the union with another set. It returns s itself if other adds no field.
func (s fieldSet) plus(other *fieldpath.Set) fieldSet {
	if s.Set == nil {
		return fieldSet{Set: other}
	}
	if s.raw != nil && other.Difference(s.Set).Empty() {
		return s
	}
	return fieldSet{Set: s.Union(other)}
}

// truncateTime returns a time in the precision of entries.
func truncateTime(now time.Time) *metav1.Time {
	return &metav1.Time{Time: now.UTC().Truncate(time.Second)}
}

// maxConflictBytes is the size in bytes after which no more conflicts are formatted. The response
// has a lower limit.
const maxConflictBytes = 1 << 20

// conflictError returns the 409 of an apply: a cause for each field, and the text that clients
// match.
func conflictError(conflicts merge.Conflicts) error {
	// The fields of each manager keep the order of their set.
	slices.SortStableFunc(conflicts, func(a, b merge.Conflict) int { return strings.Compare(a.Manager, b.Manager) })
	var causes []metav1.StatusCause
	var lines []string
	size := 0
	for i, c := range conflicts {
		manager := ownerOf(c.Manager).String()
		path := c.Path.String()
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + manager, Field: path,
		})
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", manager))
		}
		lines = append(lines, "- "+path)
		size += len(manager) + len(path)
		if size > maxConflictBytes && i+1 < len(conflicts) {
			lines = append(lines, fmt.Sprintf("and %d more", len(conflicts)-i-1))
			break
		}
	}
	message := fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n"))
	if len(conflicts) == 1 {
		message = fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field)
	}
	return apierrors.NewApplyConflict(causes, message)
}

// String returns the owner as conflict messages name it.
func (o owner) String() string {
	text := fmt.Sprintf("%q", o.Manager)
	if o.Subresource != "" {
		text += fmt.Sprintf(" with subresource %q", o.Subresource)
	}
	if !o.isApply() {
		text += " using " + o.APIVersion
	}
	return text
}

// MaxMembers limits the map keys or list elements at one path that can have separate owners. The
// time of structured-merge-diff grows with the square of their number.
const MaxMembers = 20_000

// MaxPaths is the maximum total size in bytes of the paths of all members. Paths are formatted for
// each error, including the keys that identify list elements, possibly many times.
const MaxPaths = 32 << 20

// errExceedsLimits returns the error for objects that exceed MaxMembers or MaxPaths. An apply to
// such an object is rejected; after other writes it has no managedFields.
func errExceedsLimits() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"an object or list has more than %d members with separate field owners, or their paths have more than %d bytes",
		MaxMembers, MaxPaths))
}

// exceedsLimits reports whether a value has more than MaxMembers at one path, or exceeds MaxPaths.
func exceedsLimits(t *typed.TypedValue) bool {
	w := pathCounter{schema: t.Schema()}
	return w.exceedsLimits(t.TypeRef(), t.AsValue(), 0)
}

// pathCounter adds up the sizes of all paths in a value.
type pathCounter struct {
	schema *smd.Schema
	paths  int // bytes so far
}

// exceedsLimits reports whether a value exceeds the limits. path is the size in bytes of the
// value's path.
func (w *pathCounter) exceedsLimits(ref smd.TypeRef, typedValue value.Value, path int) (exceeded bool) {
	w.paths += path
	if w.paths > MaxPaths {
		return true
	}
	if typedValue == nil || typedValue.IsNull() {
		return false
	}
	atom, _ := w.schema.Resolve(ref) // values without a type are visited for their paths
	switch {
	case typedValue.IsMap():
		m := typedValue.AsMap()
		if atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic && m.Length() > MaxMembers {
			return true
		}
		m.Iterate(func(key string, child value.Value) bool {
			element := smd.TypeRef{}
			if atom.Map != nil {
				element = atom.Map.ElementType
				if f, ok := atom.Map.FindField(key); ok {
					element = f.Type
				}
			}
			exceeded = w.exceedsLimits(element, child, path+len(key)+1)
			return !exceeded
		})
	case typedValue.IsList():
		list := typedValue.AsList()
		associative := atom.List != nil && atom.List.ElementRelationship != smd.Atomic
		if associative && list.Length() > MaxMembers {
			return true
		}
		element := smd.TypeRef{}
		if atom.List != nil {
			element = atom.List.ElementType
		}
		for i := range list.Length() {
			child := list.At(i)
			step := indexStep
			if associative {
				step += keySize(atom.List, child)
			}
			if w.exceedsLimits(element, child, path+step) {
				return true
			}
		}
	}
	return exceeded
}

// indexStep is the approximate size in bytes of an element's index in a path.
const indexStep = 8

// keySize returns the size in bytes of the key of a list element.
func keySize(list *smd.List, typedValue value.Value) (size int) {
	switch {
	case typedValue == nil:
	case typedValue.IsString():
		return len(typedValue.AsString())
	case typedValue.IsMap():
		m := typedValue.AsMap()
		for _, key := range list.Keys {
			size += len(key) + 1
			if v, ok := m.Get(key); ok && v != nil && v.IsString() {
				size += len(v.AsString())
			}
		}
	}
	return size
}

// compareTyped compares two values with structured-merge-diff. It returns an error if one of them
// exceeds the limits.
func compareTyped(a, b *typed.TypedValue) (*typed.Comparison, error) {
	if exceedsLimits(a) || exceedsLimits(b) {
		return nil, errExceedsLimits()
	}
	return a.Compare(b)
}
