package patch

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/status"
)

// Directives of strategic merge patches. The last two are prefixes of a list's name.
const (
	patchDirective      = "$patch"
	retainKeysDirective = "$retainKeys"
	orderDirective      = "$setElementOrder/"
	deletionDirective   = "$deleteFromPrimitiveList/"
)

// MaxCompared is the maximum number of element pairs that a strategic merge patch may compare. Each
// element of a merged list is compared with the other elements of the patch and with all existing
// elements.
const MaxCompared = 10_000_000

// checkStrategic rejects invalid merge keys and elements in the merged lists of a strategic merge
// patch, and names their fields. The library compares them unchecked and panics on incomparable
// values. It also rejects patches that exceed MaxCompared. tree is the object to patch, shape a
// value of its Go type. pairs is an estimate of how many pairs of elements the merge compares.
func checkStrategic(patch, tree map[string]any, shape any) (pairs int, err error) {
	meta, err := strategicpatch.NewPatchMetaFromStruct(shape)
	if err != nil {
		return 0, err
	}
	checker := patchChecker{longestList: lengthOfLongestList(tree)}
	errs := checker.checkMerged(nil, patch, tree, meta)
	switch {
	case checker.maxPairs > MaxCompared:
		return 0, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"merging the lists of the patch takes more than %d comparisons of elements", MaxCompared))
	case len(errs) > 0:
		return 0, status.Invalid(schema.GroupKind{}, "", errs)
	}
	return checker.pairs, nil
}

// patchChecker checks one patch.
type patchChecker struct {
	// longestList is the length of the longest list in the object.
	longestList int
	// maxPairs is an upper bound of the number of compared element pairs. It assumes that each list of
	// the patch is merged with the longest list.
	maxPairs int
	// pairs is a closer estimate that uses the lengths of the matching lists.
	pairs int
}

// countMerge counts the merge of a list of the patch with a list of the object.
func (c *patchChecker) countMerge(elements, existing int) {
	c.maxPairs += elements * (elements + c.longestList)
	c.pairs += elements * (elements + existing)
}

// lengthOfLongestList returns the length of the longest list in a JSON value.
func lengthOfLongestList(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, x := range v {
			n = max(n, lengthOfLongestList(x))
		}
	case []any:
		n = len(v)
		for _, x := range v {
			n = max(n, lengthOfLongestList(x))
		}
	}
	return n
}

// checkMerged checks an object of a patch that is merged field by field with the existing one.
func (c *patchChecker) checkMerged(
	path *field.Path,
	patch, existing map[string]any,
	meta strategicpatch.LookupPatchMeta,
) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		value := patch[key]
		path := childPath(path, key)
		list, isList := value.([]any)
		name, isOrder := strings.CutPrefix(key, orderDirective)
		switch {
		case key == patchDirective:
			if _, ok := value.(string); !ok {
				errs = append(errs, field.TypeInvalid(path, value, "must be a string"))
			}
		case isList && isOrder:
			errs = append(errs, c.checkOrder(path, list, name, existing, meta)...)
		case strings.HasPrefix(key, deletionDirective) && !isList:
			errs = append(errs, field.TypeInvalid(path, value, "must be a list"))
		case isList && (key == retainKeysDirective || strings.HasPrefix(key, deletionDirective)):
			name := strings.TrimPrefix(key, deletionDirective)
			c.countMerge(len(list), len(listOf(existing, name)))
			errs = append(errs, checkScalars(path, list)...)
		case isList:
			_, ordered := patch[orderDirective+key]
			errs = append(errs, c.checkList(path, list, key, listOf(existing, key), meta, ordered)...)
		default:
			object, ok := value.(map[string]any)
			if !ok {
				continue
			}
			// A value without a field is not merged.
			if inner, _, err := meta.LookupPatchMetadataForStruct(key); err == nil {
				before, _ := existing[key].(map[string]any)
				errs = append(errs, c.checkMerged(path, object, before, inner)...)
			}
		}
	}
	return errs
}

// listOf returns the list with a name in an object, or nil.
func listOf(object map[string]any, name string) []any {
	list, _ := object[name].([]any)
	return list
}

// byMergeKey returns the elements of a list by their merge key.
func byMergeKey(list []any, mergeKey string) map[any]map[string]any {
	out := make(map[any]map[string]any, len(list))
	for _, element := range list {
		if object, ok := element.(map[string]any); ok && isScalar(object[mergeKey]) {
			out[object[mergeKey]] = object
		}
	}
	return out
}

// checkList checks a list of a patch. If lists of its field are merged or ordered, its elements are
// compared with each other and with the existing elements.
func (c *patchChecker) checkList(
	path *field.Path,
	list []any,
	key string,
	existing []any,
	meta strategicpatch.LookupPatchMeta,
	ordered bool,
) (errs field.ErrorList) {
	inner, metadata, err := meta.LookupPatchMetadataForSlice(key)
	if err != nil || !ordered && !slices.Contains(metadata.GetPatchStrategies(), "merge") {
		return nil
	}
	c.countMerge(len(list), len(existing))
	mergeKey := metadata.GetPatchMergeKey()
	if mergeKey == "" {
		return checkScalars(path, list)
	}
	before := byMergeKey(existing, mergeKey)
	for i, element := range list {
		path := path.Index(i)
		object, ok := element.(map[string]any)
		if !ok {
			errs = append(errs, field.TypeInvalid(path, element, "must be an object"))
			continue
		}
		v, ok := object[mergeKey]
		if ok && !isScalar(v) {
			errs = append(errs, field.TypeInvalid(path.Child(mergeKey), v, "a merge key must be a string, a number or a boolean"))
			continue
		}
		errs = append(errs, c.checkMerged(path, object, before[v], inner)...)
	}
	return errs
}

// checkOrder checks the element order that a patch requests for a list.
func (c *patchChecker) checkOrder(
	at *field.Path,
	list []any,
	name string,
	existing map[string]any,
	meta strategicpatch.LookupPatchMeta,
) field.ErrorList {
	inner, metadata, err := meta.LookupPatchMetadataForSlice(name)
	if err != nil {
		return nil // the library reports the unknown list
	}
	c.countMerge(len(list), len(listOf(existing, name)))
	mergeKey := metadata.GetPatchMergeKey()
	if mergeKey == "" {
		if !hasScalarElements(inner) {
			return field.ErrorList{field.Forbidden(at, "the elements of the list have no merge key")}
		}
		return checkScalars(at, list)
	}
	var errs field.ErrorList
	for i, element := range list {
		object, _ := element.(map[string]any) // the library reports other types
		if v, ok := object[mergeKey]; ok && !isScalar(v) {
			errs = append(errs, field.TypeInvalid(at.Index(i).Child(mergeKey), v, "a merge key must be a string, a number or a boolean"))
		}
	}
	return errs
}

// checkScalars rejects elements that are not scalars.
func checkScalars(at *field.Path, list []any) (errs field.ErrorList) {
	for i, v := range list {
		if v == nil || !isScalar(v) {
			errs = append(errs, field.TypeInvalid(at.Index(i), v, "must be a string, a number or a boolean"))
		}
	}
	return errs
}

// isScalar reports whether a JSON value is neither a list nor an object. Go can compare such values.
func isScalar(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return false
	}
	return true
}

// hasScalarElements reports whether a list's elements are scalars.
func hasScalarElements(meta strategicpatch.LookupPatchMeta) bool {
	structMeta, ok := meta.(strategicpatch.PatchMetaFromStruct)
	if !ok {
		return false
	}
	t := structMeta.T
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Interface:
		return false
	}
	return true
}

// childPath returns the path of a member, where nil stands for the root.
func childPath(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}
	return at.Child(name)
}
