package apiextensions

import (
	"reflect"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestStoredFormKeepsDefinition checks that a definition is the same after its conversion to the older
// form, in which it is stored, and back.
func TestStoredFormKeepsDefinition(t *testing.T) {
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

// TestDefinitionDefaults checks the defaults of a definition with a webhook, and of an empty one.
func TestDefinitionDefaults(t *testing.T) {
	kind := Kinds(registry.Settings{})[0]
	definition := kind.New().(*v1.CustomResourceDefinition)
	definition.Spec.Names.Kind = "Widget"
	definition.Spec.Conversion = &v1.CustomResourceConversion{Strategy: v1.WebhookConverter, Webhook: &v1.WebhookConversion{
		ClientConfig: &v1.WebhookClientConfig{Service: &v1.ServiceReference{}},
	}}
	kind.Default(definition)
	if names := definition.Spec.Names; names.Singular != "widget" || names.ListKind != "WidgetList" {
		t.Errorf("got names %+v, want singular widget, list kind WidgetList", names)
	}
	if port := definition.Spec.Conversion.Webhook.ClientConfig.Service.Port; port == nil || *port != 443 {
		t.Errorf("got port %v, want 443", port)
	}

	empty := &v1.CustomResourceDefinition{}
	kind.Default(empty)
	if empty.Spec.Conversion == nil || empty.Spec.Conversion.Strategy != v1.NoneConverter {
		t.Errorf("empty definition: got conversion %v, want strategy None", empty.Spec.Conversion)
	}
}

// TestStoredVersionsKeepOldStorageVersion checks that status.storedVersions lists the storage version,
// and keeps the old one when the storage version changes.
func TestStoredVersionsKeepOldStorageVersion(t *testing.T) {
	kind := Kinds(registry.Settings{})[0]
	definition := kind.New().(*v1.CustomResourceDefinition)
	definition.Spec.Versions = []v1.CustomResourceDefinitionVersion{{Name: "v1beta1"}, {Name: "v1", Storage: true}}
	definition.Status.StoredVersions = []string{"sent by the client"}
	kind.Default(definition)
	kind.Create.Prepare(definition)
	if got, want := definition.Status.StoredVersions, []string{"v1"}; !slices.Equal(got, want) {
		t.Errorf("after creation: got stored versions %v, want %v", got, want)
	}

	changed := definition.DeepCopy()
	changed.Spec.Versions[0].Storage, changed.Spec.Versions[1].Storage = true, false
	changed.Status.StoredVersions = nil
	kind.Update.Prepare(changed, definition)
	if got, want := changed.Status.StoredVersions, []string{"v1", "v1beta1"}; !slices.Equal(got, want) {
		t.Errorf("after the change: got stored versions %v, want %v", got, want)
	}
	if got, want := definition.Status.StoredVersions, []string{"v1"}; !slices.Equal(got, want) {
		t.Errorf("live object: got stored versions %v, want it unchanged, %v", got, want)
	}
}

// TestCatalogAcceptsKind checks that the declaration of the kind is complete.
func TestCatalogAcceptsKind(t *testing.T) {
	groups := []registry.Group{{Name: v1.GroupName, Versions: []string{"v1"}}}
	if _, err := registry.NewCatalog(groups, Kinds(registry.Settings{})); err != nil {
		t.Errorf("NewCatalog: got error %v, want none", err)
	}
}
