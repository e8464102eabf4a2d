package transcode_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/json/transcode"
)

// TestMemoHoldsNoInput checks that a memo copies what it caches: the caller may reuse the memory of
// the input.
func TestMemoHoldsNoInput(t *testing.T) {
	program, err := transcode.Compile(reflect.TypeFor[corev1.ConfigMap]())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 10, 1 << 20} {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"app.kubernetes.io/name": strings.Repeat("n", 40)}},
			Data:       map[string]string{"k": strings.Repeat("v", size)},
		}
		raw, err := configMap.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		first := weak.Make(&raw[0])
		memo := &transcode.Memo{}
		if _, ok := program.Append(nil, raw, 1, memo); !ok {
			t.Fatal("not transcoded")
		}
		raw = nil
		runtime.GC()
		if first.Value() != nil {
			t.Errorf("input of %d bytes: the memo still refers to it after Append, want it released", size)
		}
		runtime.KeepAlive(memo)
	}
}
