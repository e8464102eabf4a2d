package views

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/cel-go/common/types"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/builtin"
)

// fill sets fields of an object by chance.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if depth > 9 || r.Intn(4) == 0 {
		return
	}
	if v.CanAddr() {
		if _, ok := v.Addr().Interface().(json.Marshaler); ok { // written by itself
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(r, v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.Intn(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			value := reflect.New(v.Type().Elem()).Elem()
			fill(r, value, depth+1)
			v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), value)
		}
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Intn(3)))
	}
}

// plain is a tree without what is turned later.
func plain(v any) any {
	switch v := v.(type) {
	case *lazyList:
		return plain(v.Value())
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}

// What is turned later is what would be turned at once, of every kind.
func TestLazyTree(t *testing.T) {
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(1))
	lists := 0
	for _, k := range catalog.Kinds() {
		for range 20 {
			obj := k.New()
			fill(r, reflect.ValueOf(obj).Elem(), 0)
			want, err := Tree(obj, k.GVK())
			if err != nil {
				t.Fatal(err)
			}
			lazy, err := lazyTree(obj, k.GVK())
			if err != nil {
				t.Fatal(err)
			}
			adapter := types.DefaultTypeAdapter
			if adapter.NativeToValue(lazy).Equal(adapter.NativeToValue(want)) != types.True {
				t.Errorf("%s: the trees are not equal in CEL", k.GVK())
			}
			if got := plain(lazy); !reflect.DeepEqual(got, any(want)) {
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(want)
				t.Fatalf("%s:\n%s, want\n%s", k.GVK(), a, b)
			}
			lists += countLists(lazy)
		}
	}
	if lists < 1000 {
		t.Errorf("only %d lists were turned later", lists)
	}
}

func countLists(v any) (n int) {
	switch v := v.(type) {
	case *lazyList:
		n = 1 + countLists(v.Value())
	case map[string]any:
		for _, e := range v {
			n += countLists(e)
		}
	case []any:
		for _, e := range v {
			n += countLists(e)
		}
	}
	return n
}
