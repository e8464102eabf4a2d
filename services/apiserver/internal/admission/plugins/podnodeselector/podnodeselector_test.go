package podnodeselector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/podnodeselector"
	"binnacle/services/apiserver/internal/registry"
)

// namespaces maps a name to the node selector annotation of the namespace. Namespaces without an entry
// exist without the annotation, except absent. The lookup of broken fails.
type namespaces map[string]string

func (n namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	switch name {
	case "absent":
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case "broken":
		return nil, errors.New("no answer")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if text, ok := n[name]; ok {
		namespace.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/node-selector": text}
	}
	return namespace, nil
}

// config has a default selector, and the selectors that pods in the namespaces pns and listed may
// have.
const config = `podNodeSelectorPluginConfig:
  clusterDefaultNodeSelector: "cluster=default"
  pns: "zone=a,tier=x"
  listed: "env=prod,zone=a"
`

// TestNodeSelectorsAreMergedOrConflict checks that a created pod gets the node selector of its
// namespace, or else that of the cluster, and that conflicts are rejected.
func TestNodeSelectorsAreMergedOrConflict(t *testing.T) {
	const (
		conflict     = `pods "a" is forbidden: pod node label selector conflicts with its namespace node label selector`
		notPermitted = `pods "a" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	)
	all := namespaces{"pns2": "env=prod", "pns3": "==", "listed": "env=prod", "empty": ""}
	for name, test := range map[string]struct {
		config, namespace string
		op                admission.Operation // default: create
		subresource       string
		selector, want    map[string]string // of the pod, before and after
		wantErr           string
	}{
		"cluster default": {config: config, namespace: "off", want: map[string]string{"cluster": "default"}},
		"cluster default that the pod has": {
			config: config, namespace: "off", selector: map[string]string{"cluster": "default", "x": "y"},
			want: map[string]string{"cluster": "default", "x": "y"},
		},
		"conflict with the cluster default":          {config: config, namespace: "off", selector: map[string]string{"cluster": "x"}, wantErr: conflict},
		"key outside the permitted ones, no default": {config: config, namespace: "pns", selector: map[string]string{"zone": "a"}, wantErr: notPermitted},
		"key that is not permitted":                  {config: config, namespace: "listed", selector: map[string]string{"foo": "a"}, wantErr: notPermitted},
		"value that is not permitted":                {config: config, namespace: "listed", selector: map[string]string{"zone": "b"}, wantErr: notPermitted},
		"permitted key and value": {
			config: config, namespace: "listed", selector: map[string]string{"zone": "a"},
			want: map[string]string{"env": "prod", "zone": "a"},
		},
		"annotation of the namespace":  {config: config, namespace: "pns2", want: map[string]string{"env": "prod"}},
		"conflict with the annotation": {config: config, namespace: "pns2", selector: map[string]string{"env": "dev"}, wantErr: conflict},
		"empty annotation":             {config: config, namespace: "empty"},
		"invalid annotation":           {config: config, namespace: "pns3", wantErr: "invalid selector: [  ]"},
		"no configuration":             {namespace: "off"},
		"absent":                       {namespace: "absent", wantErr: "Internal error occurred: namespace absent does not exist"},
		"namespace lookup fails":       {namespace: "broken", wantErr: "Internal error occurred: no answer"},
		"update": {
			config: config, namespace: "off", op: admission.Update, selector: map[string]string{"cluster": "x"},
			want: map[string]string{"cluster": "x"},
		},
		"subresource": {config: config, namespace: "off", subresource: "eviction"},
	} {
		var data []byte
		if test.config != "" {
			data = []byte(test.config)
		}
		plugin, err := podnodeselector.New(data, all)
		if err != nil {
			t.Fatal(err)
		}
		if test.op == "" {
			test.op = admission.Create
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeSelector: test.selector}}
		req := &admission.Request{
			Operation: test.op, Subresource: test.subresource,
			Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Namespace: test.namespace,
			Object: pod,
		}
		err = plugin.Admit(t.Context(), req)
		if err == nil && test.wantErr != "" || err != nil && err.Error() != test.wantErr {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.wantErr)
		}
		if again := plugin.Validate(t.Context(), req); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("%s: Validate after Admit: got error %v, want %v", name, again, err)
		}
		if got, want := fmt.Sprint(pod.Spec.NodeSelector), fmt.Sprint(test.want); test.wantErr == "" && got != want {
			t.Errorf("%s: got node selector %s, want %s", name, got, want)
		}
	}
}

// TestInvalidConfigurationIsRejected checks the messages for unknown fields, duplicate fields and
// invalid selectors.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"unknown field": {file: "podNodeSelectorPluginConfigs: {}", want: `strict decoding error: unknown field "podNodeSelectorPluginConfigs"`},
		"duplicate field": {file: `{"podNodeSelectorPluginConfig":{"a":"b=c","a":"d=e"}}`,
			want: `strict decoding error: duplicate field "podNodeSelectorPluginConfig.a"`},
		"invalid selector": {file: "podNodeSelectorPluginConfig: {a: \"==\"}", want: "podNodeSelectorPluginConfig[a]: invalid selector: [  ]"},
	} {
		if _, err := podnodeselector.New([]byte(c.file), nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}
