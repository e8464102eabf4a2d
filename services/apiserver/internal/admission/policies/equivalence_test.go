package policies_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// expression returns a random boolean expression over config maps, nested up to depth. Some of its
// results are errors, such as those of missing keys.
func expression(random *rand.Rand, depth int) string {
	key := string(rune('a' + random.IntN(4)))
	atoms := []string{
		"has(object.data)",
		"has(object.data." + key + ")",
		"object.data." + key + " == '" + string(rune('a'+random.IntN(3))) + "'",
		"object.data.size() > " + fmt.Sprint(random.IntN(4)),
		"'" + key + "' in object.data",
		"object.metadata.name.startsWith('" + key + "')",
		"object.metadata.labels." + key + ".contains('a')",
		"object.data.all(k, k != '" + key + "')",
		"object.data.exists(k, object.data[k] == '" + key + "')",
		"object.metadata.?labels[?'" + key + "'].orValue('') == ''",
		"oldObject == null",
		"request.name == 'x'",
		"object.metadata.generation > " + fmt.Sprint(random.IntN(3)),
	}
	if depth == 0 || random.IntN(3) == 0 {
		return atoms[random.IntN(len(atoms))]
	}
	a, b := expression(random, depth-1), expression(random, depth-1)
	switch random.IntN(4) {
	case 0:
		return "(" + a + " && " + b + ")"
	case 1:
		return "(" + a + " || " + b + ")"
	case 2:
		return "!(" + a + ")"
	}
	return "(" + a + " ? " + b + " : " + expression(random, depth-1) + ")"
}

// randomMap returns a config map with random labels and data.
func randomMap(random *rand.Rand) *corev1.ConfigMap {
	randomEntries := func() map[string]string {
		if random.IntN(4) == 0 {
			return nil
		}
		out := map[string]string{}
		for range random.IntN(4) {
			out[string(rune('a'+random.IntN(4)))] = string(rune('a' + random.IntN(3)))
		}
		return out
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "x" + string(rune('a'+random.IntN(3))),
			Namespace:  "default",
			Labels:     randomEntries(),
			Generation: int64(random.IntN(3)),
		}, Data: randomEntries(),
	}
}

// TestPoliciesDecideLikeCEL checks that policies give the verdicts of cel-go over plain maps, for
// random objects and policies.
func TestPoliciesDecideLikeCEL(t *testing.T) {
	const policyCount, objectCount, maxDepth = 60, 150, 3
	random := rand.New(rand.NewPCG(1, 2))

	// 1. Create policies with random expressions. Each one has its own fixture, because a request
	// gets only the first rejection. A reference program evaluates the same expression.
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
	type testedPolicy struct {
		expression string
		reference  cel.Program
		fixture    *fixture
	}
	var testedPolicies []testedPolicy
	for range policyCount {
		text := expression(random, maxDepth)
		ast, issues := env.Compile(text)
		if issues.Err() != nil {
			t.Fatalf("compile %s: got %v, want no error", text, issues.Err())
		}
		reference, err := env.Program(ast)
		if err != nil {
			t.Fatalf("program of %s: got %v, want no error", text, err)
		}
		testedPolicies = append(testedPolicies, testedPolicy{
			expression: text,
			reference:  reference,
			fixture:    newFixture(t, validatingPolicy("p", `"validations":[{"expression":"`+text+`"}]`), validatingBinding("p", deny)),
		})
	}

	// 2. Compare the verdicts. An error of an expression counts as a rejection.
	verdicts := map[bool]int{}
	for range objectCount {
		configMap := randomMap(random)
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configMap)
		if err != nil {
			t.Fatal(err)
		}
		for _, tested := range testedPolicies {
			v, _, err := tested.reference.Eval(map[string]any{"object": tree, "oldObject": nil, "request": map[string]any{"name": "x"}})
			want := err == nil && v.Value() == true
			verdicts[want]++
			rejection := tested.fixture.validating.Validate(t.Context(), tested.fixture.request("configmaps", configMap.DeepCopy()))
			if got := rejection == nil; got != want {
				t.Fatalf("%s of %s: got %t (rejection %v), want %t (error of cel-go: %v)",
					tested.expression, asJSON(configMap), got, rejection, want, err)
			}
		}
	}

	// 3. Check that the random policies test both verdicts.
	if verdicts[true] < 1000 || verdicts[false] < 1000 {
		t.Errorf("got verdicts %v, want at least 1000 of each", verdicts)
	}
}
