package policies_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// expression returns a random expression over config maps.
func expression(r *rand.Rand, depth int) string {
	key := string(rune('a' + r.IntN(4)))
	atoms := []string{
		"has(object.data)",
		"has(object.data." + key + ")",
		"object.data." + key + " == '" + string(rune('a'+r.IntN(3))) + "'",
		"object.data.size() > " + fmt.Sprint(r.IntN(4)), "'" + key + "' in object.data",
		"object.metadata.name.startsWith('" + key + "')",
		"object.metadata.labels." + key + ".contains('a')", "object.data.all(k, k != '" + key + "')",
		"object.data.exists(k, object.data[k] == '" + key + "')",
		"object.metadata.?labels[?'" + key + "'].orValue('') == ''", "oldObject == null", "request.name == 'x'",
		"object.metadata.generation > " + fmt.Sprint(r.IntN(3)),
	}
	if depth == 0 || r.IntN(3) == 0 {
		return atoms[r.IntN(len(atoms))]
	}
	a, b := expression(r, depth-1), expression(r, depth-1)
	switch r.IntN(4) {
	case 0:
		return "(" + a + " && " + b + ")"
	case 1:
		return "(" + a + " || " + b + ")"
	case 2:
		return "!(" + a + ")"
	}
	return "(" + a + " ? " + b + " : " + expression(r, depth-1) + ")"
}

// randomMap returns a config map with random labels and data.
func randomMap(r *rand.Rand) *corev1.ConfigMap {
	randomEntries := func() map[string]string {
		if r.IntN(4) == 0 {
			return nil
		}
		out := map[string]string{}
		for range r.IntN(4) {
			out[string(rune('a'+r.IntN(4)))] = string(rune('a' + r.IntN(3)))
		}
		return out
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "x" + string(rune('a'+r.IntN(3))),
			Namespace:  "default",
			Labels:     randomEntries(),
			Generation: int64(r.IntN(3)),
		}, Data: randomEntries(),
	}
}

// TestSameAsCEL checks that policies give the verdicts of cel-go over plain maps, for random
// objects and policies.
func TestSameAsCEL(t *testing.T) {
	const manyPolicies, manyObjects = 60, 150
	r := rand.New(rand.NewPCG(1, 2))
	env, err := cel.NewEnv(
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.Variable("object", cel.DynType),
		cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType),
	)
	if err != nil {
		t.Fatal(err)
	}
	type other struct {
		name string
		cel.Program
	}
	var objects []string
	var others []other
	for i := range manyPolicies {
		text := expression(r, 3)
		ast, issues := env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		p, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("p%03d", i)
		others = append(others, other{name, p})
		objects = append(objects, policy(name, `"validations":[{"expression":"`+text+`"}]`),
			boundPolicy(name, `"validationActions":["Audit"]`))
	}
	// Each policy has its own fixture, so that all verdicts are visible.
	fixtures := map[string]*fixture{}
	for i, o := range others {
		fixtures[o.name] = newFixture(t, objects[2*i], strings.Replace(objects[2*i+1], "Audit", "Deny", 1))
	}
	verdicts := map[bool]int{}
	for range manyObjects {
		m := randomMap(r)
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range others {
			v, _, err := o.Eval(map[string]any{"object": tree, "oldObject": nil, "request": map[string]any{"name": "x"}})
			want := err == nil && v.Value() == true
			verdicts[want]++
			f := fixtures[o.name]
			rejection := f.validating.Validate(t.Context(), f.request("configmaps", m.DeepCopy()))
			if got := rejection == nil; got != want {
				t.Fatalf("%s of %s: got %t, want %t (%v; %v)", o.name, asJSON(m), got, want, rejection, err)
			}
		}
	}
	if verdicts[true] < 1000 || verdicts[false] < 1000 {
		t.Errorf("got verdicts %v, want at least 1000 of each", verdicts)
	}
}
