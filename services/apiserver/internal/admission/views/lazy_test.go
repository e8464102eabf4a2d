package views

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// maxFillDepth is deep enough for the container fields of a pod template in a workload.
const maxFillDepth = 9

// fill sets random fields of an object, down to maxFillDepth. It leaves values with their own encoding
// unset.
func fill(random *rand.Rand, target reflect.Value, depth int) {
	if depth > maxFillDepth || random.Intn(4) == 0 {
		return
	}
	if target.CanAddr() {
		if _, ok := target.Addr().Interface().(json.Marshaler); ok { // has its own encoding
			return
		}
	}
	switch target.Kind() {
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		fill(random, target.Elem(), depth+1)
	case reflect.Struct:
		for i := range target.NumField() {
			if target.Type().Field(i).IsExported() {
				fill(random, target.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		target.Set(reflect.MakeSlice(target.Type(), random.Intn(3), 3))
		for i := range target.Len() {
			fill(random, target.Index(i), depth+1)
		}
	case reflect.Map:
		if target.Type().Key().Kind() == reflect.String {
			target.Set(reflect.MakeMap(target.Type()))
			value := reflect.New(target.Type().Elem()).Elem()
			fill(random, value, depth+1)
			target.SetMapIndex(reflect.ValueOf("k").Convert(target.Type().Key()), value)
		}
	case reflect.String:
		target.SetString("s")
	case reflect.Bool:
		target.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		target.SetInt(int64(random.Intn(3)))
	}
}

// compare reads a lazily converted value in all ways and compares it with the tree. path is the
// path of the value in messages. It returns the number of compared values.
func compare(t *testing.T, path string, got ref.Val, want any) (compared int) {
	t.Helper()
	adapter := types.DefaultTypeAdapter
	if got.Equal(adapter.NativeToValue(want)) != types.True {
		t.Fatalf("%s: got %v, want %v", path, got.Value(), want)
	}
	compared = 1
	switch want := want.(type) {
	case map[string]any:
		mapper := got.(traits.Mapper)
		for name, value := range want {
			found, ok := mapper.Find(types.String(name))
			if !ok || mapper.Contains(types.String(name)) != types.True {
				t.Fatalf("%s: got no field %s, want %v", path, name, value)
			}
			compared += compare(t, path+"."+name, found, value)
		}
		if s, ok := got.(*lazyStruct); ok {
			for _, f := range s.encoding.fields {
				if _, ok := want[f.name]; ok {
					continue
				}
				if v, ok := mapper.Find(types.String(f.name)); ok || mapper.Contains(types.String(f.name)) != types.False || !types.IsError(mapper.Get(types.String(f.name))) {
					t.Fatalf("%s: got field %s = %v, want it absent", path, f.name, v)
				}
			}
		}
		if mapper.Size() != types.Int(len(want)) {
			t.Fatalf("%s: got size %v, want %d", path, mapper.Size(), len(want))
		}
	case []any:
		l := got.(traits.Lister)
		i := 0
		for it := l.Iterator(); it.HasNext() == types.True; i++ {
			compared += compare(t, fmt.Sprintf("%s[%d]", path, i), it.Next(), want[i])
			if l.Get(types.Int(i)).Equal(adapter.NativeToValue(want[i])) != types.True {
				t.Fatalf("%s: got element %d %v, want %v", path, i, l.Get(types.Int(i)), want[i])
			}
		}
		if i != len(want) || l.Size() != types.Int(i) || !types.IsError(l.Get(types.Int(i))) || !types.IsError(l.Get(types.String("a"))) {
			t.Fatalf("%s: got %d elements, size %v, want %d, and errors for other indexes", path, i, l.Size(), len(want))
		}
	}
	return compared
}

// TestLazyTreeEqualsEagerTree checks that lazy and eager conversion give the same values for every
// kind.
func TestLazyTreeEqualsEagerTree(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewSource(1))
	encodings := &StructEncodings{}
	compared := 0
	for _, kind := range catalog.Kinds() {
		for range 20 {
			obj := kind.New()
			fill(random, reflect.ValueOf(obj).Elem(), 0)
			want, err := Tree(obj, kind.GVK())
			if err != nil {
				t.Fatal(err)
			}
			lazy, ok := lazyTree(encodings, obj, kind.GVK()).(ref.Val)
			if !ok {
				t.Fatalf("%s is not converted lazily", kind.GVK())
			}
			compared += compare(t, kind.Kind, lazy, want)
			if !reflect.DeepEqual(lazy.Value(), any(want)) {
				t.Fatalf("%s: got %v, want %v", kind.GVK(), lazy.Value(), want)
			}
		}
	}
	if compared < 10000 { // fewer means that fill leaves too many objects empty
		t.Errorf("got %d compared values, want at least 10000", compared)
	}
}
