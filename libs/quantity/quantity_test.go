package quantity_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/libs/quantity"
)

// TestCheckCostRejectsExpensiveQuantities checks the limits on length and exponent, and that
// MayBeExpensive finds each rejected quantity.
func TestCheckCostRejectsExpensiveQuantities(t *testing.T) {
	for text, ok := range map[string]bool{
		"1": true, "-100m": true, "1.5Gi": true, "1E": true, "12e6": true, "1e-9": true, "1e999": true, "1E+0000012": true,
		"": true, "abc": true, "e1234": false, // rejected although the parser is quick
		"1e1000": false, "1E-2147483647": false, "1e+99999999999999999999": false, "-.5e00001000": false,
		"1e-2147483647 ": false, "\t1e2147483647\u00a0": false, " 1e3 ": true,
		strings.Repeat("9", 256): true, strings.Repeat("9", 257): false, "0." + strings.Repeat("0", 255) + "1": false,
	} {
		if err := quantity.CheckCost(text); (err == nil) != ok {
			t.Errorf("CheckCost(%.40q) = %v, want success: %t", text, err, ok)
		}
		if !ok && !strings.HasPrefix(text, "e") && !quantity.MayBeExpensive([]byte(`{"cpu":"`+text+`"}`)) {
			t.Errorf("MayBeExpensive(%.40q) = false, want true, because CheckCost rejects it", text)
		}
	}
}

// TestCheckJSONReadsNestedValues checks that CheckJSON finds expensive quantities in nested values,
// and ignores invalid JSON.
func TestCheckJSONReadsNestedValues(t *testing.T) {
	for doc, ok := range map[string]bool{
		`[{"a":{"averageValue":"1e-2147483647"}}]`: false, `{"a":[1e2147483647]}`: false,
		`{"a":["10m",1e3,"1e1000x"]}`: true, `{"a":"1e-2147483647`: true, // the decoder rejects it
	} {
		if err := quantity.CheckJSON([]byte(doc)); (err == nil) != ok {
			t.Errorf("%s: %v, want success: %v", doc, err, ok)
		}
	}
}

// FuzzMayBeExpensive checks that MayBeExpensive finds each quantity that the parser accepts and
// CheckCost rejects.
func FuzzMayBeExpensive(f *testing.F) {
	for _, text := range []string{"1e1000", "100m", strings.Repeat("1", 300), "1e+12", "-0.5E-77777"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if quantity.CheckCost(text) == nil || quantity.MayBeExpensive([]byte(text)) {
			return
		}
		if _, err := resource.ParseQuantity(text); err == nil {
			t.Errorf("MayBeExpensive(%q) = false, want true", text)
		}
	})
}
