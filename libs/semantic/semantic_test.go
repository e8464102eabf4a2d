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
func mutate(value reflect.Value, random *rand.Rand) bool {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() || random.IntN(12) == 0 {
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
		return mutate(value.Elem(), random)
	case reflect.Struct:
		switch p := value.Addr().Interface().(type) {
		case *resource.Quantity:
			*p = resource.MustParse([]string{"1", "1000m", "2", "0", "1Ki"}[random.IntN(5)])
			return true
		case *metav1.Time:
			p.Time = p.Time.In(time.FixedZone("elsewhere", random.IntN(2)*3600))
			return true
		case *metav1.MicroTime:
			p.Time = p.Time.Add(time.Duration(random.IntN(2)))
			return true
		}
		for _, i := range random.Perm(value.NumField()) {
			if mutate(value.Field(i), random) {
				return true
			}
		}
		return false
	case reflect.Slice:
		if value.Len() > 0 && random.IntN(4) > 0 {
			return mutate(value.Index(random.IntN(value.Len())), random)
		}
		if value.Len() == 0 {
			value.Set(reflect.MakeSlice(value.Type(), random.IntN(2), 1)) // or a value with the same meaning
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
		value.SetString(value.String() + "x"[:random.IntN(2)])
	case reflect.Bool:
		value.SetBool(random.IntN(2) == 0)
	case reflect.Interface:
		return false
	default:
		if value.CanInt() {
			value.SetInt(int64(random.IntN(2)))
		} else {
			value.SetUint(uint64(random.IntN(2)))
		}
	}
	return true
}

// TestEqualAgreesWithApimachinery compares the results for random differences.
func TestEqualAgreesWithApimachinery(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	count := map[bool]int{}
	for _, empty := range kinds() {
		for seed := range int64(60) {
			a := empty.DeepCopyObject()
			filler(seed).Fill(a)
			b := a.DeepCopyObject()
			for range random.IntN(3) {
				mutate(reflect.ValueOf(b), random)
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

// TestEqualAgreesOnRareValues checks values that are rare in objects.
func TestEqualAgreesOnRareValues(t *testing.T) {
	number := 1
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
	for name, test := range map[string]struct{ first, second any }{
		"nothing":               {},
		"nothing and something": {second: 1},
		"types":                 {first: 1, second: int64(1)},
		"numbers":               {first: 1, second: 2},
		"pointers":              {first: &number, second: new(int)},
		"a nil pointer":         {first: (*int)(nil), second: &number},
		"nil pointers":          {first: (*int)(nil), second: (*int)(nil)},
		"lists":                 {first: []string{}, second: []string(nil)},
		"a longer list":         {first: []string{"a"}, second: []string{"a", "b"}},
		"maps":                  {first: map[string]string{}, second: map[string]string(nil)},
		"other keys":            {first: map[string]int{"a": 1}, second: map[string]int{"b": 1}},
		"resources": {first: corev1.ResourceList{"cpu": resource.MustParse("1")},
			second: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
		"other resources": {
			first:  corev1.ResourceList{"cpu": resource.MustParse("1")},
			second: corev1.ResourceList{"cpu": resource.MustParse("2")},
		},
		"decoded JSON":   {first: map[string]any{"a": []any{1.5, nil, "x"}}, second: map[string]any{"a": []any{1.5, nil, "x"}}},
		"other JSON":     {first: map[string]any{"a": []any{1.5, nil}}, second: map[string]any{"a": []any{int64(1), nil}}},
		"nested":         {first: &schema{Items: &schema{Most: &number}}, second: &schema{Items: &schema{Most: &number}}},
		"other nested":   {first: &schema{Items: &schema{Most: &number}}, second: &schema{Items: &schema{}}},
		"without an end": {first: endless, second: &schema{Items: endless}},
		"selectors":      {first: hidden{selector("a=b")}, second: hidden{selector("a in (b)")}},
		"same selectors": {first: hidden{selector("a=b,c=d")}, second: hidden{selector("c=d,a=b")}},
	} {
		if got, want := semantic.Equal(test.first, test.second), equality.Semantic.DeepEqual(test.first, test.second); got != want {
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
	pod := &corev1.Pod{}
	filler(7).Fill(pod)
	same := pod.DeepCopy()
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !semantic.Equal(pod, same) {
				b.Fatal("not equal")
			}
		}
	})
	b.Run("apimachinery", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !equality.Semantic.DeepEqual(pod, same) {
				b.Fatal("not equal")
			}
		}
	})
}
