package apiextensions

import (
	"reflect"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestStoredForm checks that definitions are stored in the older form and read back.
func TestStoredForm(t *testing.T) {
	kind := Kinds(registry.Settings{})[0]
	definition := &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
		Scope: v1.ClusterScoped, Versions: []v1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &v1.CustomResourceValidation{}}},
	}}
	stored, err := kind.Stored.ToStored(definition)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.TypeOf(stored) != reflect.TypeOf(kind.Stored.New()) {
		t.Errorf("got stored type %T, want %T", stored, kind.Stored.New())
	}
	back, err := kind.Stored.FromStored(stored)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, registry.Object(definition)) {
		t.Errorf("FromStored(ToStored(definition)) = %v, want %v", back, registry.Object(definition))
	}
	if _, err := kind.Stored.ToStored(stored); err == nil {
		t.Errorf("ToStored(%T): got no error, want one", stored)
	}
	if _, err := kind.Stored.FromStored(definition); err == nil {
		t.Errorf("FromStored(%T): got no error, want one", definition)
	}
}

// TestDefinition checks the defaults of a definition, and how status.storedVersions follows the storage
// version.
func TestDefinition(t *testing.T) {
	// 1. Create a definition whose storage version is v1.
	kind := Kinds(registry.Settings{})[0]
	definition := kind.New().(*v1.CustomResourceDefinition)
	definition.Spec.Names.Kind = "Widget"
	definition.Spec.Versions = []v1.CustomResourceDefinitionVersion{{Name: "v1beta1"}, {Name: "v1", Storage: true}}
	definition.Spec.Conversion = &v1.CustomResourceConversion{Strategy: v1.WebhookConverter, Webhook: &v1.WebhookConversion{
		ClientConfig: &v1.WebhookClientConfig{Service: &v1.ServiceReference{}},
	}}
	definition.Status.StoredVersions = []string{"made up"}
	kind.Default(definition)
	kind.Create.Prepare(definition)
	if n := definition.Spec.Names; n.Singular != "widget" || n.ListKind != "WidgetList" {
		t.Errorf("got names %+v, want singular widget, list kind WidgetList", n)
	}
	if p := definition.Spec.Conversion.Webhook.ClientConfig.Service.Port; p == nil || *p != 443 {
		t.Errorf("got port %v, want 443", p)
	}
	if !slices.Equal(definition.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("got stored versions %v, want %v", definition.Status.StoredVersions, []string{"v1"})
	}

	// 2. Change the storage version. The old one stays in storedVersions.
	next := definition.DeepCopy()
	next.Spec.Versions[0].Storage, next.Spec.Versions[1].Storage = true, false
	next.Status.StoredVersions = nil
	kind.Update.Prepare(next, definition)
	if !slices.Equal(next.Status.StoredVersions, []string{"v1", "v1beta1"}) {
		t.Errorf("got stored versions %v, want %v", next.Status.StoredVersions, []string{"v1", "v1beta1"})
	}
	if !slices.Equal(definition.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("the live object was modified: got %v, want %v", definition.Status.StoredVersions, []string{"v1"})
	}

	// 3. Default a definition without fields, and register the kind.
	bare := &v1.CustomResourceDefinition{}
	kind.Default(bare)
	if bare.Spec.Conversion == nil || bare.Spec.Conversion.Strategy != v1.NoneConverter {
		t.Errorf("got conversion %v, want strategy None", bare.Spec.Conversion)
	}
	if _, err := registry.NewCatalog([]registry.Group{{Name: v1.GroupName, Versions: []string{"v1"}}}, Kinds(registry.Settings{})); err != nil {
		t.Errorf("NewCatalog: got error %v, want none", err)
	}
}
