package typefacts

import (
	"strings"
	"testing"
)

// TestFactsOfEverySortAreRead checks an example of each sort of fact in the embedded file.
func TestFactsOfEverySortAreRead(t *testing.T) {
	facts, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	port := facts.Type("k8s.io/api/core/v1.ContainerPort").Field("protocol")
	if port.Default != "TCP" {
		t.Errorf("got default protocol %v, want %q", port.Default, "TCP")
	}
	ports := facts.Type("k8s.io/api/core/v1.Container").Field("ports")
	if ports.ListType != "map" || strings.Join(ports.Keys, " ") != "containerPort protocol" {
		t.Errorf("got ports merged as %q by %v, want \"map\" by containerPort and protocol", ports.ListType, ports.Keys)
	}
	serviceName := facts.Type("k8s.io/api/apps/v1.StatefulSetSpec").Field("serviceName")
	if serviceName.Required == nil || *serviceName.Required {
		t.Errorf("StatefulSetSpec.serviceName: got required %v, want false", serviceName.Required)
	}
	if kind := facts.Type("k8s.io/api/core/v1.AzureDiskVolumeSource").Field("kind"); kind.Default != "Shared" {
		t.Errorf("got constant %v, want %q", kind.Default, "Shared")
	}
	if union := facts.Type("k8s.io/api/flowcontrol/v1.Subject").Union; len(union) != 1 {
		t.Errorf("got union %v, want one", union)
	}
	if quantity := facts.Type("k8s.io/apimachinery/pkg/api/resource.Quantity"); quantity.Doc == nil || !strings.Contains(*quantity.Doc, "fixed-point") {
		t.Errorf("Quantity: got description %v, want one that contains \"fixed-point\"", quantity.Doc)
	}
	protocols := facts.Enum("k8s.io/api/core/v1.Protocol")
	if len(protocols) != 3 || protocols[0] != (Value{"SCTP", "is the SCTP protocol."}) {
		t.Errorf("got protocols %v, want 3, SCTP first with its description", protocols)
	}
	if other := facts.Type("k8s.io/api/core/v1.Nothing"); other.Doc != nil || other.Field("x").Default != nil {
		t.Errorf("unknown type: got facts %+v, want none", other)
	}
}

// TestCorruptFactsAreRejected checks that each kind of invalid line is rejected.
func TestCorruptFactsAreRejected(t *testing.T) {
	for name, text := range map[string]string{
		"a single word":                      "type\n",
		"an unknown line":                    "class\tx\n",
		"a value without enum":               "value\ta\tb\n",
		"a value without description":        "enum\tx\nvalue\ta\n",
		"a field without type":               "field\ta\tlistType=set\n",
		"an unknown fact of a type":          "type\tx\tcolour=red\n",
		"an unknown fact of a field":         "type\tx\nfield\ta\tcolour=red\n",
		"a default that is invalid JSON":     "type\tx\nfield\ta\tdefault=TCP\n",
		"a description that is invalid JSON": "type\tx\tdoc=words\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s, %q: got no error, want one", name, text)
		}
	}
}
