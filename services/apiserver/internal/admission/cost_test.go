package admission_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestExpensiveExpressionsAcquireLimiter checks that the expressions of one request acquire the
// limiter once their total cost is high, and only once.
func TestExpensiveExpressionsAcquireLimiter(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"numbers": cel.ListType(cel.IntType)})
	if err != nil {
		t.Fatal(err)
	}
	program, err := env.Compile(`numbers.all(a, numbers.all(b, a + b >= 0))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	// One evaluation makes 45² = 2025 additions. It stays below expensiveCost, two exceed it.
	numbers := make([]int64, 45)
	acquisitions := 0
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(size int) bool {
		acquisitions++
		return size < request.LargeBody // a rejection does not matter
	}}
	for range 2 { // each request counts its own cost
		acquisitions = 0
		req := &admission.Request{}
		for i := range 6 {
			if ok, err := program.Bool(req.Metered(ctx), map[string]any{"numbers": numbers}, nil); !ok || err != nil {
				t.Fatalf("expression %d: got %t and error %v, want true and no error", i+1, ok, err)
			}
			want := 0
			if i > 0 { // from the second expression on
				want = 1
			}
			if acquisitions != want {
				t.Errorf("after %d expressions: got %d acquisitions, want %d", i+1, acquisitions, want)
			}
		}
	}
}
