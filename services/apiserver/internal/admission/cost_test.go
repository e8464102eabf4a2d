package admission_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// TestCostOfExpressions: expressions of one request that are expensive together are charged once,
// whichever plugin evaluates them. Other requests are charged separately.
func TestCostOfExpressions(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"numbers": cel.ListType(cel.IntType)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := env.Compile(`numbers.all(a, numbers.all(b, a + b >= 0))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]int64, 45) // squared, more than half of the free cost
	charges := 0
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
	request.SetWeigh(ctx, func(size int) bool {
		charges++
		return size < request.LargeBody // a throttled request continues
	})
	for range 2 {
		charges = 0
		r := &admission.Request{}
		for i := range 6 {
			if ok, err := p.Bool(r.Metered(ctx), map[string]any{"numbers": many}, nil); !ok || err != nil {
				t.Fatalf("got %v, %v", ok, err)
			}
			if want := min(i, 1); charges != want {
				t.Errorf("after %d expressions: got %d charges, want %d", i+1, charges, want)
			}
		}
	}
}
