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

// conversion converts an object's JSON in place from one version's form to another's.
type conversion func(object map[string]any)

// storageFormOf returns a StorageForm that stores objects of type Newest as the older type Older. The
// versions differ in the position of a few fields, so an object is converted through its JSON.
func storageFormOf[Older, Newest any, OlderPtr pointer[Older], NewestPtr pointer[Newest]](
	prefix string,
	toOlder, toNewest conversion,
) registry.StorageForm {
	return registry.StorageForm{
		Prefix:  prefix,
		Version: resourcev1beta1.SchemeGroupVersion,
		New:     func() runtime.Object { return OlderPtr(new(Older)) },
		ToStored: func(o registry.Object) (registry.Object, error) {
			out := OlderPtr(new(Older))
			return out, convertJSON(o, out, toOlder)
		},
		FromStored: func(o registry.Object) (registry.Object, error) {
			out := NewestPtr(new(Newest))
			return out, convertJSON(o, out, toNewest)
		},
	}
}

// convertJSON converts an object to another type: it encodes the object as JSON, applies convert and
// decodes the result.
func convertJSON(from, to registry.Object, convert conversion) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		return err
	}
	convert(object)
	if b, err = json.Marshal(object); err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		return fmt.Errorf("convert %T to %T: %w", from, to, err)
	}
	return nil
}

// changeEach applies convert to the objects of the list at path.
func changeEach(convert conversion, path ...string) conversion {
	return func(object map[string]any) {
		for _, name := range path[:len(path)-1] {
			object, _ = object[name].(map[string]any)
		}
		list, _ := object[path[len(path)-1]].([]any)
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				convert(m)
			}
		}
	}
}

// nest moves all fields except those in keep below a name.
func nest(name string, keep ...string) conversion {
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
func unnest(name string) conversion {
	return func(object map[string]any) {
		inner, _ := object[name].(map[string]any)
		delete(object, name)
		maps.Copy(object, inner)
	}
}

// nestExactly converts a DeviceRequest to v1beta2, with the results of Convert_v1beta1_DeviceRequest in
// Kubernetes:
//   - A request with alternatives keeps only its name and the alternatives.
//   - Another request with fields besides its name gets them below "exactly".
//   - A request without such fields gets no "exactly".
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
	otherFields := len(request)
	if _, named := request["name"]; named {
		otherFields--
	}
	if otherFields > 0 {
		nest("exactly", "name")(request)
	}
}

// keepForm is the conversion between versions that have the same form.
func keepForm(map[string]any) {}

// validateAsNewest adapts rules for the newest version to objects of the older version. It converts the
// objects with convert.
func validateAsNewest[Older, Newest any, OlderPtr pointer[Older], NewestPtr pointer[Newest]](
	convert conversion,
	rules func(fld validate.Field, obj, old NewestPtr),
) func(fld validate.Field, obj, old OlderPtr) {
	return func(fld validate.Field, olderObj, olderPrevious OlderPtr) {
		newObj, oldObj := NewestPtr(new(Newest)), NewestPtr(nil)
		err := convertJSON(olderObj, newObj, convert)
		if err == nil && olderPrevious != nil {
			oldObj = NewestPtr(new(Newest))
			err = convertJSON(olderPrevious, oldObj, convert)
		}
		// Protobuf can encode values that JSON cannot.
		if err != nil {
			fld.Child("spec").InvalidOmitValue("", err.Error())
			return
		}
		rules(fld, newObj, oldObj)
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
