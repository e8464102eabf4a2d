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

// namespaces maps a name to the annotation of the namespace.
type namespaces map[string]string

func (n namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	switch name {
	case "absent":
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case "broken":
		return nil, errors.New("no answer")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if text, ok := n[name]; ok {
		ns.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/node-selector": text}
	}
	return ns, nil
}

const config = "podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: \"cluster=default\"\n  pns: \"zone=a,tier=x\"\n  listed: \"env=prod,zone=a\"\n"

// TestNodeSelectorsAreMergedOrConflict merges the node selectors of the namespace and of the
// cluster, and rejects conflicts.
func TestNodeSelectorsAreMergedOrConflict(t *testing.T) {
	const (
		conflict = `pods "a" is forbidden: pod node label selector conflicts with its namespace node label selector`
		notThere = `pods "a" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	)
	all := namespaces{"pns2": "env=prod", "pns3": "==", "listed": "env=prod", "empty": ""}
	for name, c := range map[string]struct {
		config, namespace string
		op                admission.Operation
		sub               string
		selector, want    map[string]string
		err               string
	}{
		"cluster default": {config: config, namespace: "off", want: map[string]string{"cluster": "default"}},
		"cluster default, agrees": {
			config: config, namespace: "off", selector: map[string]string{"cluster": "default", "x": "y"},
			want: map[string]string{"cluster": "default", "x": "y"},
		},
		"cluster default, not": {config: config, namespace: "off", selector: map[string]string{"cluster": "x"}, err: conflict},
		"list without default": {config: config, namespace: "pns", selector: map[string]string{"zone": "a"}, err: notThere},
		"outside the list":     {config: config, namespace: "listed", selector: map[string]string{"foo": "a"}, err: notThere},
		"another value":        {config: config, namespace: "listed", selector: map[string]string{"zone": "b"}, err: notThere},
		"in the list": {
			config: config, namespace: "listed", selector: map[string]string{"zone": "a"},
			want: map[string]string{"env": "prod", "zone": "a"},
		},
		"annotation":           {config: config, namespace: "pns2", want: map[string]string{"env": "prod"}},
		"annotation, conflict": {config: config, namespace: "pns2", selector: map[string]string{"env": "dev"}, err: conflict},
		"annotation, empty":    {config: config, namespace: "empty"},
		"annotation, bad":      {config: config, namespace: "pns3", err: "invalid selector: [  ]"},
		"no configuration":     {namespace: "off"},
		"absent":               {namespace: "absent", err: "Internal error occurred: namespace absent does not exist"},
		"lookup fails":         {namespace: "broken", err: "Internal error occurred: no answer"},
		"update": {
			config: config, namespace: "off", op: admission.Update, selector: map[string]string{"cluster": "x"},
			want: map[string]string{"cluster": "x"},
		},
		"sub-resource": {config: config, namespace: "off", sub: "eviction"},
	} {
		var data []byte
		if c.config != "" {
			data = []byte(c.config)
		}
		plugin, err := podnodeselector.New(data, all)
		if err != nil {
			t.Fatal(err)
		}
		if c.op == "" {
			c.op = admission.Create
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeSelector: c.selector}}
		r := &admission.Request{
			Operation: c.op, Subresource: c.sub,
			Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Namespace: c.namespace,
			Object: pod,
		}
		err = plugin.Admit(t.Context(), r)
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
		if again := plugin.Validate(t.Context(), r); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("%s: second validation: got %v, want %v", name, again, err)
		}
		if got, want := fmt.Sprint(pod.Spec.NodeSelector), fmt.Sprint(c.want); c.err == "" && got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestInvalidConfigurations checks the messages for unknown fields, duplicate fields and invalid
// selectors.
func TestInvalidConfigurations(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"unknown field": {file: "podNodeSelectorPluginConfigs: {}", want: `strict decoding error: unknown field "podNodeSelectorPluginConfigs"`},
		"twice": {file: `{"podNodeSelectorPluginConfig":{"a":"b=c","a":"d=e"}}`,
			want: `strict decoding error: duplicate field "podNodeSelectorPluginConfig.a"`},
		"no selector": {file: "podNodeSelectorPluginConfig: {a: \"==\"}", want: "podNodeSelectorPluginConfig[a]: invalid selector: [  ]"},
	} {
		if _, err := podnodeselector.New([]byte(c.file), nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v; want an error, %v", name, err, c.want)
		}
	}
}
