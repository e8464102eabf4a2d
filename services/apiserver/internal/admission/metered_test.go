package admission_test

import (
	"testing"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// TestMetered: expressions that cost a lot together have the request take its turn, once, whichever
// plugin asks; those of another request count for themselves.
func TestMetered(t *testing.T) {
	env, err := celenv.New(map[string]*cel.Type{"numbers": cel.ListType(cel.IntType)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := env.Compile(`numbers.all(a, numbers.all(b, a + b >= 0))`, cel.BoolType)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]int64, 45) // squared, more than half of what is cheap
	weighed := 0
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
	request.SetWeigh(ctx, func(size int) bool {
		weighed++
		return size < request.LargeBody // no turn comes in time: it goes on all the same
	})
	for range 2 {
		weighed = 0
		r := &admission.Request{}
		for i := range 6 {
			if ok, err := p.Bool(r.Metered(ctx), map[string]any{"numbers": many}, nil); !ok || err != nil {
				t.Fatalf("got %v, %v", ok, err)
			}
			if want := min(i, 1); weighed != want {
				t.Errorf("after %d expressions %d turns, want %d", i+1, weighed, want)
			}
		}
	}
}
