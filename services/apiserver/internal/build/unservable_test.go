package build

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/registry"
)

// storedAs returns what another server stores of an object that this one rejects.
func (api *testServer) storedAs(obj registry.Object, apiVersion, kind string) string {
	api.t.Helper()
	raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		api.t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	envelope, err := unknown.Marshal()
	if err != nil {
		api.t.Fatal(err)
	}
	return "k8s\x00" + string(envelope)
}

// metaOf returns the metadata of an object in the namespace default.
func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u-1"}
}

// unservableValue is a stored value that JSON cannot express.
type unservableValue struct {
	key, value string
	text       string // part of the error of reads
	good       string // a valid object of the kind
}

const podSpec = `{"containers":[{"name":"a","image":"b"}]}`

// unservable returns values by the path of their collection.
func unservable(api *testServer) map[string]unservableValue {
	late := metav1.NewTime(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))
	return map[string]unservableValue{
		"/api/v1/namespaces/default/services": {
			key: "services/specs/default/unservable",
			value: api.storedAs(&corev1.Service{
				ObjectMeta: metaOf("unservable"),
				Spec: corev1.ServiceSpec{
					Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.IntOrString{Type: 7}}},
				},
			}, "v1", "Service"),
			text: "spec.ports.targetPort: type 7 is neither an integer nor a string",
			good: `"spec":{"ports":[{"port":80}]}`,
		},
		"/apis/apps/v1/namespaces/default/deployments": {
			key: "deployments/default/unservable",
			value: api.storedAs(&appsv1.Deployment{
				ObjectMeta: metaOf("unservable"),
				Spec: appsv1.DeploymentSpec{
					Template: corev1.PodTemplateSpec{
						Spec: corev1.PodSpec{
							Containers: []corev1.Container{
								{LivenessProbe: &corev1.Probe{
									ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.IntOrString{Type: 2}}},
								}},
							},
						},
					},
				},
			}, "apps/v1", "Deployment"),
			text: "spec.template.spec.containers.livenessProbe.tcpSocket.port: type 2 is neither an integer nor a string",
			good: `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + podSpec + `}}`,
		},
		"/apis/apps/v1/namespaces/default/controllerrevisions": {
			key: "controllerrevisions/default/unservable",
			value: api.storedAs(&appsv1.ControllerRevision{
				ObjectMeta: metaOf("unservable"),
				Data:       runtime.RawExtension{Raw: []byte(`{"a":`)},
			}, "apps/v1", "ControllerRevision"),
			text: `data: invalid JSON in "{\"a\":"`,
			good: `"revision":1,"data":{}`,
		},
		"/api/v1/namespaces/default/pods": {
			key: "pods/default/unservable",
			value: api.storedAs(&corev1.Pod{
				ObjectMeta: metaOf("unservable"),
				Status:     corev1.PodStatus{StartTime: &late},
			}, "v1", "Pod"),
			text: "status.startTime: time of 316516204800 seconds is not between the years 0 and 9999",
			good: `"spec":` + podSpec,
		},
		"/api/v1/namespaces/default/configmaps": {
			key:   "configmaps/default/unservable",
			value: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"unservable"},"data":{`,
			text:  "unexpected end of JSON input",
			good:  `"data":{}`,
		},
		"/api/v1/namespaces/default/secrets": {
			key:   "secrets/default/unservable",
			value: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"unservable"},"data":{"a":7}}`,
			text:  "cannot unmarshal number",
			good:  `"data":{}`,
		},
	}
}

var readForms = []string{
	"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

// TestUnservableObjectDoesNotFailOtherReads checks that an object that cannot be decoded fails its
// own reads only. Lists and watches from the cache omit it.
func TestUnservableObjectDoesNotFailOtherReads(t *testing.T) {
	api := startServer(t, func(options *config.Options) {
		if err := options.Features.Set("CBORServingAndStorage=true,WatchList=true"); err != nil {
			t.Fatal(err)
		}
	})
	var watches sync.WaitGroup
	defer watches.Wait()
	for path, bad := range unservable(api) {
		api.mustSend(201, "POST", path, `{"metadata":{"name":"good"},`+bad.good+`}`)
		version := api.get(path).resourceVersion()
		api.overwrite("/registry/"+bad.key, bad.value)
		api.waitUntil("the value to arrive", func() bool { return api.get(path).code == 500 })
		for _, accept := range readForms {
			one := strings.Replace(accept, "MetadataList", "Metadata", 1)
			if response := api.get(path+"/unservable", "Accept", one); response.code != 500 {
				t.Errorf("GET %s/unservable as %s: got status %d: %s, want 500", path, accept, response.code, response.body)
			}
			if response := api.get(path+"?resourceVersion=0", "Accept", accept); response.code != 200 ||
				!bytes.Contains(response.body, []byte("good")) || bytes.Contains(response.body, []byte("unservable")) {
				t.Errorf("list %s as %s: got status %d: %s, want 200 and only the object good", path, accept, response.code, response.body)
			}
			if accept == "application/yaml" { // not supported by watches
				continue
			}
			for _, query := range []string{
				"resourceVersion=0", "resourceVersion=" + version,
				"sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
			} {
				watches.Go(func() {
					response := api.get(path+"?watch=1&timeoutSeconds=1&"+query, "Accept", one)
					if response.code != 200 || bytes.Contains(response.body, []byte("ERROR")) || bytes.Contains(response.body, []byte("unservable")) {
						t.Errorf("watch %s?%s as %s: got status %d: %s, want 200 and no event of the unservable object",
							path, query, accept, response.code, response.body)
					}
				})
			}
		}
		for _, r := range []apiResponse{api.get(path + "/unservable"), api.get(path), api.send("DELETE", path+"/unservable", "")} {
			if text := fmt.Sprint(r.field("message")); r.code != 500 || !strings.Contains(text, bad.text) {
				t.Errorf("%s: got %d %s, want %q", path, r.code, text, bad.text)
			}
		}
	}
}

// TestUnservableObjectIsDeletedByUnsafeDelete checks that an object that cannot be decoded can be
// deleted only by an unsafe delete.
func TestUnservableObjectIsDeletedByUnsafeDelete(t *testing.T) {
	api := startServer(t, withUnsafeDelete)
	for path, bad := range unservable(api) {
		api.overwrite("/registry/"+bad.key, bad.value)
		api.waitUntil("the value to arrive", func() bool { return api.get(path).code == 500 })
		if response := api.mustSend(500, "GET", path, ""); !strings.Contains(string(response.body), `"field":"/registry/`+bad.key+`"`) {
			t.Errorf("list %s: got %s, want the key /registry/%s as field of the error", path, response.body, bad.key)
		}
		api.mustSend(500, "DELETE", path+"/unservable", "")
		api.mustSend(200, "DELETE", path+"/unservable?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
		api.mustSend(200, "GET", path, "")
	}
}

// TestUnservableNumberDoesNotFailOtherReads stores a number in a custom resource that Go clients
// cannot decode.
func TestUnservableNumberDoesNotFailOtherReads(t *testing.T) {
	api := startServer(t, nil)
	const path = "/apis/ex.test/v1/namespaces/default/wids"
	api.mustSend(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"wids.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"wids","kind":"Wid"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	api.waitUntil("served", func() bool { return api.get(path).code == 200 })
	api.mustSend(400, "POST", path, `{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"unservable"},"n":1e999}`)
	api.mustSend(201, "POST", path, `{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"good"}}`)
	api.overwrite("/registry/ex.test/wids/default/unservable",
		`{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"unservable","namespace":"default"},"n":1e999}`)
	api.waitUntil("the value to arrive", func() bool { return api.get(path).code == 500 })
	api.mustSend(500, "GET", path+"/unservable", "")
	for _, query := range []string{"?resourceVersion=0", "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
		if response := api.mustSend(200, "GET", path+query, ""); !bytes.Contains(response.body, []byte(`"good"`)) ||
			bytes.Contains(response.body, []byte("unservable")) {
			t.Errorf("%s: got %s, want only the object good", query, response.body)
		}
	}
}

// TestStoredInvalidUTF8IsServed checks that JSON contains the replacement character, as in
// Kubernetes.
func TestStoredInvalidUTF8IsServed(t *testing.T) {
	api := startServer(t, nil)
	pod := &corev1.Pod{ObjectMeta: metaOf("odd"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a\xff"}}}}
	api.overwrite("/registry/pods/default/odd", api.storedAs(pod, "v1", "Pod"))
	api.waitUntil("the value to arrive", func() bool { return api.get("/api/v1/namespaces/default/pods/odd").code == 200 })
	for _, path := range []string{
		"/api/v1/namespaces/default/pods/odd", "/api/v1/pods",
		"/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0",
	} {
		if response := api.mustSend(200, "GET", path, ""); !bytes.Contains(response.body, []byte("a\ufffd")) && !bytes.Contains(response.body, []byte(`a\ufffd`)) {
			t.Errorf("%s: got %s, want the invalid byte replaced", path, response.body)
		}
	}
}
