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
func (a *api) storedAs(obj registry.Object, apiVersion, kind string) string {
	a.t.Helper()
	raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		a.t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	envelope, err := unknown.Marshal()
	if err != nil {
		a.t.Fatal(err)
	}
	return "k8s\x00" + string(envelope)
}

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
func unservable(a *api) map[string]unservableValue {
	late := metav1.NewTime(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))
	return map[string]unservableValue{
		"/api/v1/namespaces/default/services": {
			key: "services/specs/default/unservable",
			value: a.storedAs(&corev1.Service{
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
			value: a.storedAs(&appsv1.Deployment{
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
			value: a.storedAs(&appsv1.ControllerRevision{
				ObjectMeta: metaOf("unservable"),
				Data:       runtime.RawExtension{Raw: []byte(`{"a":`)},
			}, "apps/v1", "ControllerRevision"),
			text: `data: invalid JSON in "{\"a\":"`,
			good: `"revision":1,"data":{}`,
		},
		"/api/v1/namespaces/default/pods": {
			key: "pods/default/unservable",
			value: a.storedAs(&corev1.Pod{
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
	api := start(t, func(o *config.Options) {
		if err := o.Features.Set("CBORServingAndStorage=true,WatchList=true"); err != nil {
			t.Fatal(err)
		}
	})
	var watches sync.WaitGroup
	defer watches.Wait()
	for path, bad := range unservable(api) {
		api.want(201, "POST", path, `{"metadata":{"name":"good"},`+bad.good+`}`)
		version := api.get(path).version()
		api.overwrite("/registry/"+bad.key, bad.value)
		api.eventually("the value to arrive", func() bool { return api.get(path).code == 500 })
		for _, accept := range readForms {
			one := strings.Replace(accept, "MetadataList", "Metadata", 1)
			if r := api.get(path+"/unservable", "Accept", one); r.code != 500 {
				t.Errorf("GET %s/unservable as %s: got status %d: %s, want 500", path, accept, r.code, r.body)
			}
			if r := api.get(path+"?resourceVersion=0", "Accept", accept); r.code != 200 ||
				!bytes.Contains(r.body, []byte("good")) || bytes.Contains(r.body, []byte("unservable")) {
				t.Errorf("list %s as %s: got status %d: %s, want 200 and only the object good", path, accept, r.code, r.body)
			}
			if accept == "application/yaml" { // not supported by watches
				continue
			}
			for _, query := range []string{
				"resourceVersion=0", "resourceVersion=" + version,
				"sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
			} {
				watches.Go(func() {
					r := api.get(path+"?watch=1&timeoutSeconds=1&"+query, "Accept", one)
					if r.code != 200 || bytes.Contains(r.body, []byte("ERROR")) || bytes.Contains(r.body, []byte("unservable")) {
						t.Errorf("watch %s?%s as %s: got status %d: %s, want 200 and no event of the unservable object",
							path, query, accept, r.code, r.body)
					}
				})
			}
		}
		for _, r := range []answer{api.get(path + "/unservable"), api.get(path), api.send("DELETE", path+"/unservable", "")} {
			if text := fmt.Sprint(r.at("message")); r.code != 500 || !strings.Contains(text, bad.text) {
				t.Errorf("%s: got %d %s, want %q", path, r.code, text, bad.text)
			}
		}
	}
}

// TestUnservableObjectIsDeletedByUnsafeDelete checks that an object that cannot be decoded can be
// deleted only by an unsafe delete.
func TestUnservableObjectIsDeletedByUnsafeDelete(t *testing.T) {
	a := start(t, withUnsafeDelete)
	for path, bad := range unservable(a) {
		a.overwrite("/registry/"+bad.key, bad.value)
		a.eventually("the value to arrive", func() bool { return a.get(path).code == 500 })
		if r := a.want(500, "GET", path, ""); !strings.Contains(string(r.body), `"field":"/registry/`+bad.key+`"`) {
			t.Errorf("list %s: got %s, want the key /registry/%s as field of the error", path, r.body, bad.key)
		}
		a.want(500, "DELETE", path+"/unservable", "")
		a.want(200, "DELETE", path+"/unservable?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
		a.want(200, "GET", path, "")
	}
}

// TestUnservableNumberDoesNotFailOtherReads stores a number in a custom resource that Go clients
// cannot decode.
func TestUnservableNumberDoesNotFailOtherReads(t *testing.T) {
	api := start(t, nil)
	const path = "/apis/ex.test/v1/namespaces/default/wids"
	api.want(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"wids.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"wids","kind":"Wid"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	api.eventually("served", func() bool { return api.get(path).code == 200 })
	api.want(400, "POST", path, `{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"unservable"},"n":1e999}`)
	api.want(201, "POST", path, `{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"good"}}`)
	api.overwrite("/registry/ex.test/wids/default/unservable",
		`{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"unservable","namespace":"default"},"n":1e999}`)
	api.eventually("the value to arrive", func() bool { return api.get(path).code == 500 })
	api.want(500, "GET", path+"/unservable", "")
	for _, query := range []string{"?resourceVersion=0", "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
		if r := api.want(200, "GET", path+query, ""); !bytes.Contains(r.body, []byte(`"good"`)) ||
			bytes.Contains(r.body, []byte("unservable")) {
			t.Errorf("%s: got %s, want only the object good", query, r.body)
		}
	}
}

// TestStoredInvalidUTF8IsServed checks that JSON contains the replacement character, as in
// Kubernetes.
func TestStoredInvalidUTF8IsServed(t *testing.T) {
	a := start(t, nil)
	pod := &corev1.Pod{ObjectMeta: metaOf("odd"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a\xff"}}}}
	a.overwrite("/registry/pods/default/odd", a.storedAs(pod, "v1", "Pod"))
	a.eventually("the value to arrive", func() bool { return a.get("/api/v1/namespaces/default/pods/odd").code == 200 })
	for _, path := range []string{
		"/api/v1/namespaces/default/pods/odd", "/api/v1/pods",
		"/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0",
	} {
		if r := a.want(200, "GET", path, ""); !bytes.Contains(r.body, []byte("a\ufffd")) && !bytes.Contains(r.body, []byte(`a\ufffd`)) {
			t.Errorf("%s: got %s, want the invalid byte replaced", path, r.body)
		}
	}
}
