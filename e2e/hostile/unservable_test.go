package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// message is an object that has a form in protobuf.
type message interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// inProtobuf returns an object in protobuf.
func inProtobuf(t *testing.T, apiVersion, kind string, obj message) string {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return envelope(apiVersion, kind, string(raw))
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: ownNamespace}
}

func container(c corev1.Container) corev1.PodSpec {
	c.Name, c.Image = "a", "b"
	return corev1.PodSpec{Containers: []corev1.Container{c}}
}

// collections are the paths of the sample of kinds, by kind.
var collections = map[string]string{
	"Service": "/api/v1/%sservices", "Pod": "/api/v1/%spods", "ConfigMap": "/api/v1/%sconfigmaps", "Secret": "/api/v1/%ssecrets",
	"Deployment": "/apis/apps/v1/%sdeployments", "ControllerRevision": "/apis/apps/v1/%scontrollerrevisions",
	"NetworkPolicy":           "/apis/networking.k8s.io/v1/%snetworkpolicies",
	"HorizontalPodAutoscaler": "/apis/autoscaling/v2/%shorizontalpodautoscalers",
}

func collection(kind string) string {
	return fmt.Sprintf(collections[kind], "namespaces/"+ownNamespace+"/")
}

// unservable are writes of values that one encoding can express and another cannot. Their want
// is the field that the answer names.
func unservable(t *testing.T) []expansion {
	t.Helper()
	port := intstr.IntOrString{Type: 7}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}}
	late := metav1.NewTime(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))
	labels := map[string]string{"a": "b"}
	stale := meta("s")
	stale.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte("f:x")}}}
	strange := meta("s")
	strange.Labels = map[string]string{"a": "b\xff"}
	create := func(kind, apiVersion string, obj message, want string) expansion {
		return expansion{kind + " " + want, "POST", collection(kind), protoMedia, inProtobuf(t, apiVersion, kind, obj), want}
	}
	service := &corev1.Service{ObjectMeta: meta("s"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: port}}}}
	service2 := service.DeepCopy()
	service2.Name = "stored"
	status := &corev1.Pod{ObjectMeta: meta("stored"), Status: corev1.PodStatus{StartTime: &late}}
	all := []expansion{
		create("Service", "v1", service, "targetPort"),
		create("Pod", "v1", &corev1.Pod{ObjectMeta: meta("s"), Spec: container(corev1.Container{ReadinessProbe: probe})}, "readinessProbe"),
		create("Pod", "v1", &corev1.Pod{ObjectMeta: meta("s"), Spec: container(corev1.Container{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}}})}, "preStop"),
		create("Deployment", "apps/v1", &appsv1.Deployment{ObjectMeta: meta("s"), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: container(corev1.Container{LivenessProbe: probe})},
		}}, "livenessProbe"),
		create("NetworkPolicy", "networking.k8s.io/v1", &networkingv1.NetworkPolicy{ObjectMeta: meta("s"), Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}}},
		}}, "port"),
		create("ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: meta("s"), Data: map[string]string{"a": "b\xff"}}, "data"),
		create("ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: strange}, "labels"),
		create("ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: stale}, "fieldsV1"),
		create("Secret", "v1", &corev1.Secret{ObjectMeta: meta("s"), Data: map[string][]byte{"a\xff": nil}}, "data"),
		create("ControllerRevision", "apps/v1", &appsv1.ControllerRevision{ObjectMeta: meta("s"), Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":`)}}, "data"),
		create("ControllerRevision", "apps/v1", &appsv1.ControllerRevision{ObjectMeta: meta("s"), Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":"\ud800"}`)}}, "data"),
		{"update", "PUT", collection("Service") + "/stored", protoMedia, inProtobuf(t, "v1", "Service", service2), "targetPort"},
		{"status", "PUT", collection("Pod") + "/stored/status", protoMedia, inProtobuf(t, "v1", "Pod", status), "startTime"},
	}
	lone := `{"a":"\ud800"}`
	for _, e := range []expansion{
		{"surrogate", "POST", "", jsonMedia, `{"metadata":{"name":"s"},"revision":1,"data":` + lone + `}`, "data"},
		{"surrogate in a merge patch", "PATCH", "/stored", mergeMedia, `{"data":` + lone + `}`, "data"},
		{"surrogate in a strategic merge patch", "PATCH", "/stored", listMedia, `{"data":` + lone + `}`, "data"},
		{"surrogate in a JSON patch", "PATCH", "/stored", stepMedia, `[{"op":"replace","path":"/data","value":` + lone + `}]`, "data"},
		{"surrogate that is applied", "PATCH", "/s?fieldManager=m", applyMedia, `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"s"},"revision":1,"data":` + lone + `}`, ""},
	} {
		e.path = collection("ControllerRevision") + e.path
		all = append(all, e)
	}
	for _, media := range []string{mergeMedia, listMedia} {
		all = append(all, expansion{"time in " + media, "PATCH", collection("Pod") + "/stored/status", media, `{"status":{"startTime":"12000-01-01T00:00:00Z"}}`, "12000-01-01"})
	}
	return all
}

// grant gives mallory all rights in the attacked namespace, and makes an object of each kind.
func (x *tenants) grant(t *testing.T) {
	t.Helper()
	x.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/roles", `{"metadata":{"name":"all"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)
	x.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings", `{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"all"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`)
	x.create(t, collection("Service"), `{"metadata":{"name":"stored"},"spec":{"ports":[{"port":80}]}}`)
	x.create(t, collection("Pod"), `{"metadata":{"name":"stored"},"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	x.create(t, collection("ControllerRevision"), `{"metadata":{"name":"stored"},"revision":1,"data":{"a":"\ud83d\ude00"}}`)
}

var forms = []string{
	jsonMedia, yamlMedia, protoMedia, cborMedia, "application/json;as=Table;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

// checkReads lists and watches each kind in all namespaces and forms.
func (x *tenants) checkReads(t *testing.T) {
	t.Helper()
	for kind, path := range collections {
		path = fmt.Sprintf(path, "")
		for _, form := range forms {
			for _, version := range []string{"", "?resourceVersion=0"} {
				if err := x.send(x.admin, "GET", path+version, "", "", "Accept", form).is(http.StatusOK); err != nil {
					t.Errorf("list of %s as %s: %v", kind, form, err)
				}
			}
		}
		r := x.send(x.admin, "GET", path+"?watch=1&resourceVersion=0&timeoutSeconds=1", "", "")
		if err := r.is(http.StatusOK); err != nil || strings.Contains(r.body, `"ERROR"`) {
			t.Errorf("watch of %s: %v %.300s", kind, err, r.body)
		}
	}
}

// TestValuesThatCannotBeServedAreNotStored pins the check of values before they are decoded
// and before they are stored.
func TestValuesThatCannotBeServedAreNotStored(t *testing.T) {
	x := startTenants(t)
	x.grant(t)
	c := x.client()
	x.during(t, 0, func(context.Context) {
		for _, e := range unservable(t) {
			r := x.send(c, e.method, e.path, e.media, e.body)
			err := r.rejected(e.want)
			if e.want == "" && r.err == nil && r.code < 300 { // the decoder replaced the half of a pair
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %v", e.name, err)
			}
		}
		x.checkReads(t)
	})
}

// placeholder is the name of samples; each mutated object has another one of its length.
const placeholder = "name-of-it"

// samples are objects whose bytes are mutated.
func samples(t *testing.T) map[string]string {
	labels := map[string]string{"a": "b"}
	number, name := intstr.FromInt32(80), intstr.FromString("web")
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	limits := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}
	pod := container(corev1.Container{
		Args: []string{"x"}, Resources: corev1.ResourceRequirements{Limits: limits}, Ports: []corev1.ContainerPort{{ContainerPort: 80, Name: "web"}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: name}}},
	})
	full := metav1.ObjectMeta{Name: placeholder, Labels: labels, Annotations: labels, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)}}}}
	return map[string]string{
		"Service":            inProtobuf(t, "v1", "Service", &corev1.Service{ObjectMeta: full, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 80, TargetPort: name}, {Name: "b", Port: 81, TargetPort: number}}, ClusterIP: "None", Selector: labels}}),
		"Pod":                inProtobuf(t, "v1", "Pod", &corev1.Pod{ObjectMeta: full, Spec: pod}),
		"ConfigMap":          inProtobuf(t, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: full, Data: labels, BinaryData: map[string][]byte{"c": {0xff}}}),
		"Deployment":         inProtobuf(t, "apps/v1", "Deployment", &appsv1.Deployment{ObjectMeta: full, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Strategy: appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &number}}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}}}),
		"ControllerRevision": inProtobuf(t, "apps/v1", "ControllerRevision", &appsv1.ControllerRevision{ObjectMeta: full, Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":["b",1.5,{}]}`)}}),
		"NetworkPolicy": inProtobuf(t, "networking.k8s.io/v1", "NetworkPolicy", &networkingv1.NetworkPolicy{ObjectMeta: full, Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &number}, {Port: &name}}}},
		}}),
		"HorizontalPodAutoscaler": inProtobuf(t, "autoscaling/v2", "HorizontalPodAutoscaler", &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: full, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}, Metrics: []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: limits.Cpu()}}}}}}),
	}
}

// TestMutatedProtobufIsServedInEveryForm creates objects with one byte changed. Each is
// rejected with 4xx, or stored and then served in every form.
func TestMutatedProtobufIsServedInEveryForm(t *testing.T) {
	seed, err := strconv.ParseUint(environment("BINNACLE_HOSTILE_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BINNACLE_HOSTILE_SEED=%d", seed)
	x := startTenants(t)
	x.grant(t)
	mutations := 150
	if x.long {
		mutations = 15_000
	}
	c, r := x.client(), rand.New(rand.NewPCG(seed, 0))
	stored := 0
	x.during(t, 0, func(context.Context) {
		for kind, body := range samples(t) {
			if err := x.send(c, "POST", collection(kind), protoMedia, body).is(http.StatusCreated); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			for i := range mutations {
				b := []byte(body)
				at := 4 + r.IntN(len(b)-4)
				b[at] = byte(r.IntN(256))
				name := fmt.Sprintf("m%0*d", len(placeholder)-1, i)
				mutated := strings.Replace(string(b), placeholder, name, 1)
				answer := x.send(c, "POST", collection(kind), protoMedia, mutated)
				if answer.err != nil || answer.code >= http.StatusInternalServerError {
					t.Errorf("%s with byte %d as %#x: %v", kind, at, b[at], answer.is(http.StatusCreated))
				}
				if answer.code != http.StatusCreated {
					continue
				}
				stored++
				for _, form := range forms {
					form = strings.Replace(form, "MetadataList", "Metadata", 1)
					got := x.send(c, "GET", collection(kind)+"/"+name, "", "", "Accept", form)
					if got.code != http.StatusNotFound && got.is(http.StatusOK) != nil { // the mutation may be in the name
						t.Errorf("%s with byte %d as %#x as %s: %v", kind, at, b[at], form, got.is(http.StatusOK))
					}
				}
			}
		}
		x.checkReads(t)
	})
	t.Logf("%d mutated objects were stored", stored)
}
