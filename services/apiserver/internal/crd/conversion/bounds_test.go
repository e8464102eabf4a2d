package conversion_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// rawObjects returns a handler that responds with converted objects. objects is a list of JSON values.
func rawObjects(objects string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(
			w,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1","response":{"result":{"status":"Success"},"convertedObjects":[`,
			objects,
			`]}}`,
		)
	}
}

// TestResponseIsBoundedByRequest checks that a response that is too large for the request is rejected
// before it takes much memory.
func TestResponseIsBoundedByRequest(t *testing.T) {
	const maxAlloc = 20 << 20 // bytes
	const prefix = "conversion webhook for conv.test/v1, Kind=Ep "
	for name, test := range map[string]struct {
		objects, want string
	}{
		"more objects than the limit of bytes allows": {objects: "{}" + strings.Repeat(",{}", 4<<20),
			want: prefix + "failed: unexpected error when reading response body"},
		"more objects than the limit of values allows": {objects: "{}" + strings.Repeat(",{}", 300_000),
			want: prefix + "failed: the response has too many values"},
		"more objects than requested": {objects: "{}" + strings.Repeat(",{}", 100_000), want: prefix + "returned 100001 objects, expected 1"},
		"object that is longer than the limit of bytes": {objects: `{"apiVersion":"conv.test/v2","kind":"Ep","x":"` + strings.Repeat("x", 2<<20) + `"}`,
			want: prefix + "failed: unexpected error when reading response body"},
	} {
		server := startWebhook(t)
		server.rawResponse = rawObjects(test.objects)
		webhook := server.newConversion(t, "v1beta1")
		convert := func() error {
			_, err := webhook.Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
			return err
		}
		_ = convert() // opens the connection
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := convert()
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one that contains %q", name, err, test.want)
		}
		if got := after.TotalAlloc - before.TotalAlloc - uint64(len(test.objects)); got > maxAlloc {
			t.Errorf("%s: Convert allocates %d bytes, want at most %d", name, got, uint64(maxAlloc))
		}
	}
}

// TestAllResponsesAreBoundedByObjects checks the limit on all responses of one Convert together.
func TestAllResponsesAreBoundedByObjects(t *testing.T) {
	webhookServer := startWebhook(t)
	filling := strings.Repeat("x", 4<<20)
	webhookServer.change = changeObject(func(o, _ map[string]any) { o["filling"] = filling })
	var docs [][]byte
	for i := range 40 {
		docs = append(docs, fmt.Appendf(nil,
			`{"apiVersion":"conv.test/v1","kind":"Ep","metadata":{"name":"n%d"},"x":%q}`, i, strings.Repeat("x", 1<<20+1)))
	}
	if _, err := webhookServer.newConversion(t, "v1").Convert(t.Context(), docs[:2], "v2"); err != nil {
		t.Errorf("Convert(two objects) = %v, want no error", err)
	}

	// Each response is within its own limit, but all together exceed theirs.
	filling += filling
	webhookServer.calls = nil
	if _, err := webhookServer.newConversion(t, "v1").Convert(t.Context(), docs, "v2"); err == nil || len(webhookServer.calls) > 1 {
		t.Errorf("Convert(40 large objects) = %v after %d calls, want an error after the first", err, len(webhookServer.calls))
	}
}

// TestGrownObjectsAreBoundedTogether checks that small objects that become large in a conversion are
// bounded together.
func TestGrownObjectsAreBoundedTogether(t *testing.T) {
	webhookServer := startWebhook(t)
	filling := strings.Repeat("x", 1<<20)
	var docs [][]byte
	webhookServer.change = func(r *review) {
		for _, o := range r.Response["convertedObjects"].([]any)[:40] {
			o.(map[string]any)["filling"] = filling
		}
	}
	for i := range 2500 {
		docs = append(docs, fmt.Appendf(nil, `{"apiVersion":"conv.test/v1","kind":"Ep","metadata":{"name":"n%d"}}`, i))
	}
	if _, err := webhookServer.newConversion(t, "v1").Convert(t.Context(), docs, "v2"); err == nil || len(webhookServer.calls) != 2 {
		t.Errorf("Convert(2500 small objects) = %v after %d calls, want an error after the second", err, len(webhookServer.calls))
	}
}
