package conversion_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// whole is an answer with a text as its list of objects, whatever was asked.
func whole(objects string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1","response":{"result":{"status":"Success"},"convertedObjects":[`, objects, `]}}`)
	}
}

// TestAnswersAreNoLargerThanQuestionsAllow: more is not read, or not decoded.
func TestAnswersAreNoLargerThanQuestionsAllow(t *testing.T) {
	const about = "conversion webhook for conv.test/v1, Kind=Ep "
	for name, c := range map[string]struct {
		objects, want string
		most          uint64 // that is allocated
	}{
		"far too many":    {"{}" + strings.Repeat(",{}", 4<<20), about + "failed: unexpected error when reading response body", 20 << 20},
		"too many values": {"{}" + strings.Repeat(",{}", 300_000), about + "failed: the answer has too many values", 20 << 20},
		"too many":        {"{}" + strings.Repeat(",{}", 100_000), about + "returned 100001 objects, expected 1", 20 << 20},
		"too long":        {`{"apiVersion":"conv.test/v2","kind":"Ep","x":"` + strings.Repeat("x", 2<<20) + `"}`, about + "failed: unexpected error when reading response body", 20 << 20},
	} {
		s := start(t)
		s.whole = whole(c.objects)
		w := s.webhook(t, "v1beta1")
		convert := func() error {
			_, err := w.Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
			return err
		}
		_ = convert() // the connection is made
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := convert()
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if took := after.TotalAlloc - before.TotalAlloc - uint64(len(c.objects)); took > c.most {
			t.Errorf("%s: it took %d bytes", name, took)
		}
	}
}

// TestListsAreNoLargerThanQuestionsAllow: nor is what all answers about one list come to.
func TestListsAreNoLargerThanQuestionsAllow(t *testing.T) {
	s := start(t)
	filling := strings.Repeat("x", 4<<20)
	s.bend = change(func(o, _ map[string]any) { o["filling"] = filling })
	var docs [][]byte
	for i := range 40 {
		docs = append(docs, fmt.Appendf(nil, `{"apiVersion":"conv.test/v1","kind":"Ep","metadata":{"name":"n%d"},"x":%q}`, i, strings.Repeat("x", 1<<20+1)))
	}
	if _, err := s.webhook(t, "v1").Convert(t.Context(), docs[:2], "v2"); err != nil {
		t.Errorf("a few: %v", err)
	}
	filling += filling
	s.asked = nil
	if _, err := s.webhook(t, "v1").Convert(t.Context(), docs, "v2"); err == nil || len(s.asked) > 1 {
		t.Errorf("after %d questions: %v", len(s.asked), err)
	}
	// Small ones that become large are bounded together.
	s.asked, docs = nil, nil
	filling = strings.Repeat("x", 1<<20)
	s.bend = func(r *review) {
		for _, o := range r.Response["convertedObjects"].([]any)[:40] {
			o.(map[string]any)["filling"] = filling
		}
	}
	for i := range 2500 {
		docs = append(docs, fmt.Appendf(nil, `{"apiVersion":"conv.test/v1","kind":"Ep","metadata":{"name":"n%d"}}`, i))
	}
	if _, err := s.webhook(t, "v1").Convert(t.Context(), docs, "v2"); err == nil || len(s.asked) != 2 {
		t.Errorf("of 2,500 after %d questions: %v", len(s.asked), err)
	}
}
