package semantic_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"binnacle/libs/semantic"
)

// kinds returns objects that cover all field types of the API.
func kinds() []runtime.Object {
	return []runtime.Object{
		&corev1.Pod{}, &corev1.Service{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Node{}, &corev1.Event{},
		&appsv1.Deployment{}, &appsv1.ControllerRevision{}, &networkingv1.NetworkPolicy{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{},
	}
}

func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(5), resource.DecimalSI)
		},
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(3), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = time.Unix(c.Int63n(3), 0) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(c.String(5)) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(c.String(5)) },
	)
}

// mutate changes one random place of a value slightly. The new value may have the same meaning, such
// as nil instead of an empty slice or a time in another zone. It returns false if it found no place.
func mutate(value reflect.Value, r *rand.Rand) bool {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() || r.IntN(12) == 0 {
			if !value.CanSet() {
				return false
			}
			if value.IsNil() {
				value.Set(reflect.New(value.Type().Elem()))
			} else {
				value.SetZero()
			}
			return true
		}
		return mutate(value.Elem(), r)
	case reflect.Struct:
		switch p := value.Addr().Interface().(type) {
		case *resource.Quantity:
			*p = resource.MustParse([]string{"1", "1000m", "2", "0", "1Ki"}[r.IntN(5)])
			return true
		case *metav1.Time:
			p.Time = p.Time.In(time.FixedZone("elsewhere", r.IntN(2)*3600))
			return true
		case *metav1.MicroTime:
			p.Time = p.Time.Add(time.Duration(r.IntN(2)))
			return true
		}
		for _, i := range r.Perm(value.NumField()) {
			if mutate(value.Field(i), r) {
				return true
			}
		}
		return false
	case reflect.Slice:
		if value.Len() > 0 && r.IntN(4) > 0 {
			return mutate(value.Index(r.IntN(value.Len())), r)
		}
		if value.Len() == 0 {
			value.Set(reflect.MakeSlice(value.Type(), r.IntN(2), 1)) // or a value with the same meaning
		} else {
			value.Set(value.Slice(0, value.Len()-1))
		}
		return true
	case reflect.Map:
		if value.Len() == 0 {
			value.Set(reflect.MakeMap(value.Type()))
			return true
		}
		value.SetMapIndex(value.MapKeys()[0], reflect.Value{})
		return true
	case reflect.String:
		value.SetString(value.String() + "x"[:r.IntN(2)])
	case reflect.Bool:
		value.SetBool(r.IntN(2) == 0)
	case reflect.Interface:
		return false
	default:
		if value.CanInt() {
			value.SetInt(int64(r.IntN(2)))
		} else {
			value.SetUint(uint64(r.IntN(2)))
		}
	}
	return true
}

// TestEqualAgreesWithApimachinery compares the results for random differences.
func TestEqualAgreesWithApimachinery(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	count := map[bool]int{}
	for _, empty := range kinds() {
		for seed := range int64(60) {
			a := empty.DeepCopyObject()
			filler(seed).Fill(a)
			b := a.DeepCopyObject()
			for range r.IntN(3) {
				mutate(reflect.ValueOf(b), r)
			}
			want := equality.Semantic.DeepEqual(a, b)
			if got := semantic.Equal(a, b); got != want {
				t.Fatalf("%T, seed %d: %t, want %t", a, seed, got, want)
			}
			count[want]++
		}
	}
	if count[true] < 80 || count[false] < 80 {
		t.Errorf("%d equal and %d different pairs are too few, want count[true] at least 80, count[false] at least 80", count[true], count[false])
	}
}

// TestEqualUnusualValues checks values that are rare in objects.
func TestEqualUnusualValues(t *testing.T) {
	one := 1
	type schema struct {
		Items *schema
		Most  *int
	}
	endless := &schema{}
	endless.Items = endless
	selector := func(s string) labels.Selector {
		parsed, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	type hidden struct{ Selector labels.Selector }
	for name, tc := range map[string]struct{ a, b any }{
		"nothing":               {},
		"nothing and something": {b: 1},
		"types":                 {a: 1, b: int64(1)},
		"numbers":               {a: 1, b: 2},
		"pointers":              {a: &one, b: new(int)},
		"a nil pointer":         {a: (*int)(nil), b: &one},
		"nil pointers":          {a: (*int)(nil), b: (*int)(nil)},
		"lists":                 {a: []string{}, b: []string(nil)},
		"a longer list":         {a: []string{"a"}, b: []string{"a", "b"}},
		"maps":                  {a: map[string]string{}, b: map[string]string(nil)},
		"other keys":            {a: map[string]int{"a": 1}, b: map[string]int{"b": 1}},
		"resources": {a: corev1.ResourceList{"cpu": resource.MustParse("1")},
			b: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
		"other resources": {
			a: corev1.ResourceList{"cpu": resource.MustParse("1")},
			b: corev1.ResourceList{"cpu": resource.MustParse("2")},
		},
		"decoded JSON":   {a: map[string]any{"a": []any{1.5, nil, "x"}}, b: map[string]any{"a": []any{1.5, nil, "x"}}},
		"other JSON":     {a: map[string]any{"a": []any{1.5, nil}}, b: map[string]any{"a": []any{int64(1), nil}}},
		"nested":         {a: &schema{Items: &schema{Most: &one}}, b: &schema{Items: &schema{Most: &one}}},
		"other nested":   {a: &schema{Items: &schema{Most: &one}}, b: &schema{Items: &schema{}}},
		"without an end": {a: endless, b: &schema{Items: endless}},
		"selectors":      {a: hidden{selector("a=b")}, b: hidden{selector("a in (b)")}},
		"same selectors": {a: hidden{selector("a=b,c=d")}, b: hidden{selector("c=d,a=b")}},
	} {
		if got, want := semantic.Equal(tc.a, tc.b), equality.Semantic.DeepEqual(tc.a, tc.b); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

// TestEqualChangesNothing checks that comparing quantities does not modify them.
func TestEqualChangesNothing(t *testing.T) {
	size := func(text string) *corev1.EmptyDirVolumeSource {
		q := resource.MustParse(text)
		return &corev1.EmptyDirVolumeSource{SizeLimit: &q}
	}
	small, large := size("1Gi"), size("1.5Gi")
	if semantic.Equal(small, large) || semantic.Equal(large, small) {
		t.Error("Equal() of size limits 1Gi and 1.5Gi = true, want false")
	}
	if *small.SizeLimit != *size("1Gi").SizeLimit {
		t.Errorf("got %#v, want 1Gi unchanged", *small.SizeLimit)
	}
}

// BenchmarkEqual compares the speed of Equal with that of apimachinery.
func BenchmarkEqual(b *testing.B) {
	p := &corev1.Pod{}
	filler(7).Fill(p)
	q := p.DeepCopy()
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !semantic.Equal(p, q) {
				b.Fatal("not equal")
			}
		}
	})
	b.Run("apimachinery", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !equality.Semantic.DeepEqual(p, q) {
				b.Fatal("not equal")
			}
		}
	})
}
