package follow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/customresource/peek"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/watchcache"
)

// storePaths are the parts of a stored definition that say where its objects are and
// by what they are selected.
var storePaths = peek.Compile(
	peek.Fields("spec", "group"), peek.Fields("spec", "names", "plural"), peek.Fields("status", "conditions"),
	peek.Fields("spec", "selectableFields"), peek.Fields("spec", "versions"),
)

var versionFields = peek.Compile(peek.Fields("selectableFields"))

// Defines reads from a stored definition the resource of the watch cache that has its
// objects, of all versions: none before the definition is established, nor of
// what is not definable. Objects are
// selected by what they say in the version that is stored. What the codec makes of
// each object is read from its document, so schemas are looked at for the defaults of selectable
// fields alone. noFields ignores selectable fields.
func Defines(c *codec.Codec, root string, definable func(group, resource string) bool, noFields bool) func(stored []byte) (watchcache.Resource, bool) {
	return func(stored []byte) (watchcache.Resource, bool) {
		parts, err := storePaths.Find(stored, nil)
		if err != nil {
			return watchcache.Resource{}, false
		}
		group, ok := peek.Text(parts[0])
		plural, named := peek.Text(parts[1])
		if !ok || !named || !definable(group, plural) || !established(parts[2]) {
			return watchcache.Resource{}, false
		}
		if noFields {
			return resource(c, root, group, plural, nil, nil), true
		}
		paths, err := selectable(parts[3], parts[4])
		if err != nil {
			return watchcache.Resource{}, false
		}
		absent, err := defaults(paths, parts[4])
		if err != nil {
			return watchcache.Resource{}, false
		}
		return resource(c, root, group, plural, paths, absent), true
	}
}

func resource(c *codec.Codec, root, group, plural string, paths []string, absent codec.Absences) watchcache.Resource {
	var fields []registry.SelectableField
	for _, p := range paths {
		fields = append(fields, registry.SelectableField{Label: p[1:], Path: p})
	}
	prefix := group + "/" + plural
	read, recent := codec.DocumentAttributes(fields, absent), &watchcache.Recent{}
	return watchcache.Resource{
		Name: plural + "." + group, Prefix: root + "/" + prefix + "/", Variant: variant(paths, absent),
		Attributes: func(_ string, value []byte) (watchcache.Attributes, error) {
			a, err := read(value)
			if err != nil {
				err = damaged(c, group, plural, value, err)
			}
			return watchcache.Attributes{
				Namespace: a.Namespace, Name: a.Name, Labels: watchcache.MakeSetLike(recent, a.Labels), Fields: watchcache.MakeFieldsLike(recent, a.Fields),
			}, err
		},
	}
}

// variant tells apart what selectors find in the same objects.
func variant(paths []string, absent codec.Absences) string {
	v := strings.Join(paths, " ")
	if len(absent) > 0 {
		text, _ := json.Marshal(absent) // strings, in the order of their keys
		v += " " + string(text)
	}
	return v
}

// damaged says what is wrong with a value. What knows that is large, and made only for
// it.
func damaged(c *codec.Codec, group, plural string, value []byte, found error) error {
	k, err := c.Custom(&registry.Kind{
		Names:    registry.Names{Group: group, Resource: plural},
		Stored:   registry.Stored{Prefix: group + "/" + plural, JSON: true},
		Document: &registry.Document{},
	})
	if err == nil {
		_, err = k.Attributes(value)
	}
	if err != nil {
		return err
	}
	return found
}

var conditionFields = peek.Compile(peek.Fields("type"), peek.Fields("status"))

// established tells whether the conditions of a definition say so. It is asked of every
// change of one.
func established(conditions []byte) (is bool) {
	if conditions == nil {
		return false
	}
	var parts [][]byte
	err := peek.Elements(conditions, func(_ int, condition []byte) bool {
		var err error
		if parts, err = conditionFields.Find(condition, parts); err != nil {
			return false
		}
		name, _ := peek.Text(parts[0])
		value, _ := peek.Text(parts[1])
		is = name == string(apiextensionsv1.Established) && value == string(apiextensionsv1.ConditionTrue)
		return !is
	})
	return is && err == nil
}

// selectable are the paths of the fields by which objects of any version are
// selected, in order.
func selectable(common, versions []byte) ([]string, error) {
	paths := map[string]bool{}
	add := func(list []byte) error {
		if list == nil {
			return nil
		}
		var all []apiextensionsv1.SelectableField
		if err := json.Unmarshal(list, &all); err != nil {
			return err
		}
		for _, f := range all {
			if !strings.HasPrefix(f.JSONPath, ".") {
				return fmt.Errorf("selectable field %q is no path", f.JSONPath)
			}
			paths[f.JSONPath] = true
		}
		return nil
	}
	err := add(common)
	if versions != nil && err == nil {
		var parts [][]byte
		outer := peek.Elements(versions, func(_ int, version []byte) bool {
			if parts, err = versionFields.Find(version, parts); err == nil {
				err = add(parts[0])
			}
			return err == nil
		})
		if err == nil {
			err = outer
		}
	}
	return slices.Sorted(maps.Keys(paths)), err
}
