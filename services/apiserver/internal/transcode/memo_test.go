package transcode_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/transcode"
)

// TestMemoLetsGoOfLargeMessages: a piece that is remembered holds the message that it is
// part of, so there are none of large ones.
func TestMemoLetsGoOfLargeMessages(t *testing.T) {
	program, err := transcode.Compile(reflect.TypeFor[corev1.ConfigMap]())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		size int
		held bool
	}{"small": {1 << 10, true}, "large": {1 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			o := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"app.kubernetes.io/name": strings.Repeat("n", 40)}},
				Data:       map[string]string{"k": strings.Repeat("v", c.size)},
			}
			raw, err := o.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			first, memo := weak.Make(&raw[0]), &transcode.Memo{}
			if _, ok := program.Append(nil, raw, 1, memo); !ok {
				t.Fatal("it is not written")
			}
			raw = nil
			runtime.GC()
			if held := first.Value() != nil; held != c.held {
				t.Errorf("it is held: %t", held)
			}
			runtime.KeepAlive(memo)
		})
	}
}
