package resource

import (
	"fmt"
	"maps"
	"slices"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// pointer is *T that implements registry.Object.
type pointer[T any] interface {
	*T
	registry.Object
}

// reshape converts an object's JSON from one version's form to another's.
type reshape func(object map[string]any)

// storageFormOf returns the stored form of a kind in the newest version. Old is the type of the older
// version. The versions differ in the position of a few fields, so an object is converted through
// its JSON.
func storageFormOf[Old, New any, OldP pointer[Old], NewP pointer[New]](
	prefix string,
	toOlder, toNewest reshape,
) registry.StorageForm {
	return registry.StorageForm{
		Prefix:  prefix,
		Version: resourcev1beta1.SchemeGroupVersion,
		New:     func() runtime.Object { return OldP(new(Old)) },
		ToStored: func(o registry.Object) (registry.Object, error) {
			out := OldP(new(Old))
			return out, convertJSON(o, out, toOlder)
		},
		FromStored: func(o registry.Object) (registry.Object, error) {
			out := NewP(new(New))
			return out, convertJSON(o, out, toNewest)
		},
	}
}

// convertJSON converts an object to another type through its JSON, which reshape changes in between.
func convertJSON(from, to registry.Object, change reshape) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		return err
	}
	change(object)
	if b, err = json.Marshal(object); err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		return fmt.Errorf("convert %T to %T: %w", from, to, err)
	}
	return nil
}

func changeEach(change reshape, path ...string) reshape {
	return func(object map[string]any) {
		for _, name := range path[:len(path)-1] {
			object, _ = object[name].(map[string]any)
		}
		list, _ := object[path[len(path)-1]].([]any)
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				change(m)
			}
		}
	}
}

// nest moves all fields except those in keep below a name.
func nest(name string, keep ...string) reshape {
	return func(object map[string]any) {
		inner := map[string]any{}
		for key, value := range object {
			if !slices.Contains(keep, key) {
				inner[key] = value
				delete(object, key)
			}
		}
		object[name] = inner
	}
}

// unnest reverses nest.
func unnest(name string) reshape {
	return func(object map[string]any) {
		inner, _ := object[name].(map[string]any)
		delete(object, name)
		maps.Copy(object, inner)
	}
}

// nestExactly nests a request for exact devices. For a request with alternatives it removes the other
// fields, and for an empty request it adds none.
func nestExactly(request map[string]any) {
	if alternatives, _ := request["firstAvailable"].([]any); len(alternatives) > 0 {
		for key := range request {
			if key != "name" && key != "firstAvailable" {
				delete(request, key)
			}
		}
		return
	}
	if class, _ := request["deviceClassName"].(string); class == "" {
		delete(request, "deviceClassName")
	}
	if _, named := request["name"]; len(request) > 1 || !named && len(request) > 0 {
		nest("exactly", "name")(request)
	}
}

// keepForm is the reshape of versions that have the same form.
func keepForm(map[string]any) {}

// validateAsNewest adapts rules for the newest version to objects of the older version. change converts
// them.
func validateAsNewest[Old, New any, OldP pointer[Old], NewP pointer[New]](
	change reshape,
	rules func(fld validate.Field, obj, old NewP),
) func(fld validate.Field, obj, old OldP) {
	return func(fld validate.Field, obj, old OldP) {
		now, before := NewP(new(New)), NewP(nil)
		err := convertJSON(obj, now, change)
		if err == nil && old != nil {
			before = NewP(new(New))
			err = convertJSON(old, before, change)
		}
		if err != nil { // protobuf can encode values that JSON cannot
			fld.Child("spec").InvalidOmitValue("", err.Error())
			return
		}
		rules(fld, now, before)
	}
}

// defaultCount sets the default of one exact device. Both versions' modes are strings with the same
// values.
func defaultCount[Mode ~string](mode *Mode, count *int64) {
	declare.SetDefault(mode, Mode(resourcev1beta1.DeviceAllocationModeExactCount))
	if *mode == Mode(resourcev1beta1.DeviceAllocationModeExactCount) {
		declare.SetDefault(count, 1)
	}
}
