package build

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/kubernetes/scheme"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
)

const (
	secrets  = "/api/v1/namespaces/default/secrets"
	cborType = "application/cbor"
)

func startCBOR(t *testing.T) *testServer {
	return startServer(t, func(options *config.Options) {
		if err := options.Features.Set(string(features.CBORServingAndStorage) + "=true"); err != nil {
			t.Fatal(err)
		}
	})
}

// inCBOR encodes as Go clients do.
func inCBOR(t *testing.T, v any) string {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readCBOR decodes as Go clients do.
func readCBOR[T any](t *testing.T, b []byte) *T {
	t.Helper()
	if !bytes.HasPrefix(b, []byte{0xd9, 0xd9, 0xf7}) {
		t.Fatalf("got bytes %s, want the CBOR tag d9d9f7 first", hex.EncodeToString(b[:min(len(b), 16)]))
	}
	var out T
	if err := direct.Unmarshal(b, &out); err != nil {
		t.Fatalf("%v in %s", err, hex.EncodeToString(b))
	}
	return &out
}

// TestObjectsAreServedInCBOR checks that objects, lists, patches and errors are read and written in CBOR.
func TestObjectsAreServedInCBOR(t *testing.T) {
	t.Parallel()
	api := startCBOR(t)
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"a": "b"}},
		Data:       map[string][]byte{"k": {0, 255, 1}},
	}
	response := api.mustSend(201, "POST", secrets, inCBOR(t, secret), "Content-Type", cborType, "Accept", cborType)
	if got := response.header.Get("Content-Type"); got != cborType {
		t.Errorf("got Content-Type %s, want %s", got, cborType)
	}
	created := readCBOR[corev1.Secret](t, response.body)
	if created.Kind != "Secret" || created.Type != corev1.SecretTypeOpaque || created.CreationTimestamp.IsZero() {
		t.Errorf("create: got %+v, want an opaque Secret with a creation timestamp", created)
	}
	if !reflect.DeepEqual(created.Data, secret.Data) {
		t.Errorf("create: got data %v, want %v", created.Data, secret.Data)
	}
	for i := range 30 { // exceeds the short encoding of a length
		api.mustSend(201, "POST", secrets, fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i))
	}

	// The decoder of apimachinery accepts each form.
	decoder := cbor.NewSerializer(scheme.Scheme, scheme.Scheme, cbor.Strict(true))
	obj, _, err := decoder.Decode(api.get(secrets+"/s", "Accept", cborType).body, nil, nil)
	if got, ok := obj.(*corev1.Secret); err != nil || !ok || !reflect.DeepEqual(got.Data, secret.Data) {
		t.Errorf("get: got %+v, %v, want a Secret with data %v", obj, err, secret.Data)
	}
	for _, limit := range []int{0, 25} {
		obj, _, err = decoder.Decode(api.get(fmt.Sprintf("%s?limit=%d", secrets, limit), "Accept", cborType).body, nil, nil)
		list, ok := obj.(*corev1.SecretList)
		if err != nil || !ok {
			t.Fatalf("list: got %T, %v, want a SecretList", obj, err)
		}
		if want := map[int]int{0: 31, 25: 25}[limit]; len(list.Items) != want {
			t.Fatalf("list with limit %d: got %d items, want %d", limit, len(list.Items), want)
		}
		if list.ResourceVersion == "" {
			t.Errorf("list with limit %d: got no resource version, want one", limit)
		}
		if (limit == 0) != (list.Continue == "") {
			t.Errorf("list with limit %d: got continue token %q, want one only with a limit", limit, list.Continue)
		}
		if last := list.Items[len(list.Items)-1]; limit == 0 && !reflect.DeepEqual(last.Data, secret.Data) {
			t.Errorf("list: got last item %+v, want one with data %v", last, secret.Data)
		}
	}
	const partial = cborType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	l := readCBOR[metav1.PartialObjectMetadataList](t, api.get(secrets, "Accept", partial).body)
	if l.Kind != "PartialObjectMetadataList" ||
		len(l.Items) != 31 || l.Items[30].Labels["a"] != "b" {
		t.Errorf("list of metadata: got %+v, want 31 items, the last with the label a=b", l)
	}
	table := readCBOR[metav1.Table](t, api.get(secrets, "Accept", cborType+";as=Table;g=meta.k8s.io;v=v1").body)
	if len(table.Rows) != 31 || len(table.ColumnDefinitions) == 0 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
		t.Errorf("table: got %+v, want 31 rows with a cell per column", table)
	}
	s := readCBOR[metav1.Status](t, api.mustSend(404, "GET", secrets+"/none", "", "Accept", cborType).body)
	if s.Reason != metav1.StatusReasonNotFound {
		t.Errorf("missing object: got status %+v, want reason NotFound", s)
	}
	created.Data["k2"] = []byte("x")
	updated := readCBOR[corev1.Secret](t,
		api.mustSend(200, "PUT", secrets+"/s", inCBOR(t, created), "Content-Type", cborType, "Accept", cborType).body)
	if len(updated.Data) != 2 || updated.ResourceVersion == created.ResourceVersion {
		t.Errorf("update: got %+v, want 2 keys of data and another resource version than %s", updated, created.ResourceVersion)
	}
}

// TestInvalidCBORIsRejected checks the status codes and messages for invalid bodies.
func TestInvalidCBORIsRejected(t *testing.T) {
	t.Parallel()
	api := startCBOR(t)
	for _, test := range []struct {
		name, body string
		code       int
		wantText   string
	}{
		{
			name:     "unknown field",
			body:     inCBOR(t, map[string]any{"metadata": map[string]any{"name": "x"}, "dota": map[string]any{}}),
			code:     400,
			wantText: `unknown field \"dota\"`,
		},
		{name: "a key twice", body: "\xa2\x41a\x01\x41a\x02", code: 400, wantText: "duplicate map key"},
		{name: "cut off", body: "\xa2\x41a", code: 400, wantText: "EOF"},
		{name: "endless nesting", body: strings.Repeat("\x81", 1000), code: 400, wantText: "nested"},
		{name: "a list", body: "\x80", code: 400},
		{name: "empty", code: 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := *api
			api.t = t
			response := api.mustSend(test.code, "POST", secrets+"?fieldValidation=Strict", test.body, "Content-Type", cborType)
			if !strings.Contains(string(response.body), test.wantText) {
				t.Errorf("got body %s, want it to contain %q", response.body, test.wantText)
			}
		})
	}
}

// TestWatchIsServedInCBOR checks that a watch can be encoded as a sequence of CBOR items.
func TestWatchIsServedInCBOR(t *testing.T) {
	t.Parallel()
	api := startCBOR(t)
	revision := api.mustSend(201, "POST", secrets, `{"metadata":{"name":"s"},"data":{"k":"AP8B"}}`).resourceVersion()
	for _, accept := range []string{cborType, cborType + "-seq", cborType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "GET",
				api.url+secrets+"?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			httpResponse, err := api.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer httpResponse.Body.Close()
			if got := httpResponse.Header.Get("Content-Type"); got != cborType+"-seq" {
				t.Errorf("got Content-Type %s, want %s-seq", got, cborType)
			}
			var types []string
			frames := cbor.NewFramer().NewFrameReader(httpResponse.Body)
			for {
				buf := make([]byte, 1<<16)
				count, err := frames.Read(buf)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				var e metav1.WatchEvent
				if err := direct.Unmarshal(buf[:count], &e); err != nil {
					t.Fatal(err)
				}
				types = append(types, e.Type)
				o := unstructured.Unstructured{Object: *readCBOR[map[string]any](t, e.Object.Raw)}
				if e.Type == "ADDED" && o.GetName() != "s" || o.GetResourceVersion() < revision {
					t.Errorf("got event %s of %v, want additions of s only, from version %s on", e.Type, o, revision)
				}
			}
			if len(types) == 0 || types[0] != "ADDED" {
				t.Errorf("%s: got events %v, want ADDED first", accept, types)
			}
		})
	}
}

// TestCBORIsOffByDefault checks that CBOR is rejected unless its feature gate is enabled.
func TestCBORIsOffByDefault(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	api.mustSend(406, "GET", secrets, "", "Accept", cborType)
	api.mustSend(415, "POST", secrets, inCBOR(t, map[string]any{"metadata": map[string]any{"name": "x"}}), "Content-Type", cborType)
	api.mustSend(415, "PATCH", secrets+"/x?fieldManager=m", inCBOR(t, map[string]any{}), "Content-Type", "application/apply-patch+cbor")
	api.mustSend(406, "GET", secrets+"?watch=1", "", "Accept", cborType+"-seq")
}
