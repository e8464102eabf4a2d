package responsewriters

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// View is a response with an object that is not stored, such as a Scale or a review.
type View struct {
	Object registry.Object
	GVK    schema.GroupVersionKind
	// InternalName names the type in errors, as registry.Kind.InternalName does.
	InternalName string
	// Columns and Cells make the Table. A view without columns has none.
	Columns []metav1.TableColumnDefinition
	Cells   []any
}

// AcceptsView reports whether the Accept header allows a view; table reports whether it has a Table.
func (p Responder) AcceptsView(r *http.Request, table bool) error {
	if _, ok := p.acceptView(r, table); !ok {
		return status.NotAcceptable(p.Media.Objects())
	}
	return nil
}

func (p Responder) acceptView(r *http.Request, table bool) (negotiation.Choice, bool) {
	if table {
		return p.Media.Accept(r, allForms...)
	}
	return p.Media.Accept(r, negotiation.PartialObject, negotiation.PartialObjectList)
}

// View writes a view in a negotiated form. It returns an error only before anything is sent.
func (p Responder) View(w http.ResponseWriter, r *http.Request, code int, v View) error {
	choice, ok := p.acceptView(r, v.Columns != nil)
	if !ok {
		return status.NotAcceptable(p.Media.Objects())
	}
	form := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: metav1.GroupName, Version: choice.MetaVersion, Kind: kind}
	}
	switch choice.As {
	case negotiation.PartialObjectList:
		return status.NotInForm("you requested PartialObjectMetadataList, but the requested object is not a list (" + v.InternalName + ")")
	case negotiation.PartialObject:
		p.Write(w, r, code, meta.AsPartialObjectMetadata(v.Object), form(codec.PartialKind), choice)
	case negotiation.Table:
		table, err := v.table(r, choice.MetaVersion)
		if err != nil {
			return err
		}
		p.Write(w, r, code, table, form(codec.TableKind), choice)
	default:
		p.Write(w, r, code, v.Object, v.GVK, choice)
	}
	return nil
}

// table returns the Table of the view with the object that the query requests.
func (v View) table(r *http.Request, version string) (*metav1.Table, error) {
	include, err := includeOf(r)
	if err != nil {
		return nil, err
	}
	var object runtime.Object
	switch include {
	case codec.IncludeObject:
		object = v.Object
		object.GetObjectKind().SetGroupVersionKind(v.GVK)
	case codec.IncludeMetadata:
		partial := meta.AsPartialObjectMetadata(v.Object)
		partial.TypeMeta = metav1.TypeMeta{APIVersion: codec.MetaVersion(version), Kind: codec.PartialKind}
		object = partial
	}
	return &metav1.Table{
		ListMeta:          metav1.ListMeta{ResourceVersion: v.Object.GetResourceVersion()},
		ColumnDefinitions: v.Columns,
		Rows:              []metav1.TableRow{{Cells: v.Cells, Object: runtime.RawExtension{Object: object}}},
	}, nil
}

// includeOf returns the parameter includeObject of a Table.
func includeOf(r *http.Request) (codec.Include, error) {
	s, _ := api.Parameter(r.URL.RawQuery, "includeObject")
	include, ok := codec.ParseInclude(s)
	if !ok {
		err := field.Invalid(field.NewPath("includeObject"), s, "must be 'Metadata', 'Object', 'None', or empty")
		return 0, apierrors.NewBadRequest("Unable to convert to Table as requested: " + err.Error())
	}
	return include, nil
}
