package tape_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"binnacle/services/apiserver/internal/json/tape"
)

// randomValue returns a random JSON value.
func randomValue(random *rand.Rand, depth int) any {
	texts := []string{"", "a", "ü", "<&>", "\u2028", "\xff", "\"\\\n", "key"}
	n := random.IntN(14)
	if depth > 4 {
		n %= 9
	}
	switch n {
	case 0:
		return nil
	case 1:
		return random.IntN(2) == 0
	case 2:
		return random.Int64() - random.Int64()
	case 3:
		return []float64{0, 1, 1.5, 1e21, 1e-7, -2.5e300}[random.IntN(6)]
	case 4:
		return []any{int32(7), map[string]any(nil), []any(nil), map[string]string{"b": "<", "a": "x"}, []string{"x"}}[random.IntN(5)]
	case 5, 6, 7, 8:
		return texts[random.IntN(len(texts))]
	case 9, 10:
		list := []any{}
		for range random.IntN(5) {
			list = append(list, randomValue(random, depth+1))
		}
		return list
	}
	members := map[string]any{}
	size := 6
	if depth == 0 {
		size = 80 // more than one batch of sorted keys
	}
	for i := range random.IntN(size) {
		members[texts[random.IntN(len(texts))]+fmt.Sprint(i)] = randomValue(random, depth+1)
	}
	return members
}

// TestAppendValueMatchesLibrary checks that AppendValue writes random values, and rejects values
// without a JSON form, like encoding/json. Negative zero is 0, as in Kubernetes.
func TestAppendValueMatchesLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(20261122, 1))
	for range 1000 {
		value := randomValue(r, 0)
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tape.AppendValue([]byte("x"), value); err != nil || string(got) != "x"+string(want) {
			t.Fatalf("AppendValue(%#v) = %s, %v, want x%s", value, got, err, want)
		}
	}
	negativeZero := []any{math.Copysign(0, -1)}
	if got, err := tape.AppendValue(nil, negativeZero); err != nil || string(got) != "[0]" {
		t.Errorf("AppendValue of negative zero in a list = %s, %v, want [0]", got, err)
	}
	for _, value := range []any{math.NaN(), map[string]any{"a": []any{math.Inf(1)}}, make(chan int)} {
		if _, err := tape.AppendValue(nil, value); err == nil {
			t.Errorf("AppendValue(%v): got no error, want one", value)
		}
	}
}

// TestEqualValues compares pairs of decoded values and checks that the result is that of
// reflect.DeepEqual.
func TestEqualValues(t *testing.T) {
	random := rand.New(rand.NewPCG(20261122, 2))
	var all []any
	for range 150 {
		doc, err := json.Marshal(randomValue(random, 2))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // includes equal values
			document, err := tape.Parse(doc)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, document.Any(tape.Root))
			document.Release()
		}
	}
	for _, a := range all {
		for _, b := range all {
			if got, want := tape.EqualValues(a, b), reflect.DeepEqual(a, b); got != want {
				t.Fatalf("EqualValues(%#v, %#v) = %t, want %t", a, b, got, want)
			}
		}
	}
}
