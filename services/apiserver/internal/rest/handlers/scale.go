package handlers

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cmp"
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

var scaleGVK = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

func (a *API) getScale(c *Call) error {
	if err := noExport(c.R.URL.RawQuery); err != nil {
		return err
	}
	asked, _ := api.Parameter(c.R.URL.RawQuery, "resourceVersion")
	revision, err := parseRevision(asked)
	if err != nil {
		return err
	}
	if err := c.reach(c.Context(), revision); err != nil {
		return err
	}
	e, ok := c.Store.Get(c.key())
	if !ok {
		return apierrors.NewNotFound(c.GroupResource(), c.Op.Name)
	}
	if e, err = a.readable(c, e, revision); err != nil {
		return err
	}
	obj, err := c.Coder.DecodeItem(c.Context(), codec.Item{Stored: e.Stored(), Revision: e.Revision})
	if err != nil {
		return a.objectError(e, err)
	}
	if missing := c.Sub.Scale.Missing; missing != nil {
		if err := missing(obj); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	return a.showScale(c, c.Sub.Scale.Of(obj))
}

// showScale writes a scale, as a table if the client requests one.
func (a *API) showScale(c *Call, sc *autoscalingv1.Scale) error {
	choice, ok := a.Media.Accept(c.R, negotiation.Table)
	if !ok || choice.As != negotiation.Table {
		a.Object(c.W, c.R, http.StatusOK, sc, scaleGVK)
		return nil
	}
	if choice.Media == api.MediaProtobuf {
		return status.NotAcceptable(a.Media.Objects())
	}
	meta, columns := metav1.ObjectMeta{}.SwaggerDoc(), c.Sub.Scale.Columns
	partial := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: codec.MetaVersion(choice.MetaVersion), Kind: codec.PartialKind},
		ObjectMeta: sc.ObjectMeta,
	}
	table := &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: sc.ResourceVersion},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
			{Name: "Desired", Type: "integer", Description: cmp.Or(columns.Desired, autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"])},
			{Name: "Available", Type: "integer", Description: cmp.Or(columns.Available, autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"])},
			{Name: "Age", Type: cmp.Or(columns.AgeType, "string"), Description: meta["creationTimestamp"]},
		},
		Rows: []metav1.TableRow{{
			Cells: []any{
				sc.Name, int64(sc.Spec.Replicas), int64(sc.Status.Replicas),
				duration.HumanDuration(a.Now().Sub(sc.CreationTimestamp.Time)),
			},
			Object: runtime.RawExtension{Object: partial},
		}},
	}
	a.Write(c.W, c.R, http.StatusOK, table, metav1.SchemeGroupVersion.WithKind(codec.TableKind), choice)
	return nil
}

func (a *API) updateScale(c *Call) error {
	req, err := c.UpdateRequest()
	if err != nil {
		return err
	}
	body, media, err := a.body(c)
	if err != nil {
		return err
	}
	obj, err := a.decodeAs(c, scaleGVK, body, media, req.FieldValidation)
	if err != nil {
		return err
	}
	sc, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return fmt.Errorf("%T is not a Scale", obj)
	}
	req.Object = sc
	return a.answerScale(c, req, a.Writes.Update)
}

func (a *API) patchScale(c *Call) error {
	req, err := a.patchRequest(c)
	if err != nil {
		return err
	}
	return a.answerScale(c, req, a.Writes.Patch)
}

func (a *API) answerScale(c *Call, req *writes.Request, write func(context.Context, *writes.Request) (writes.Result, error)) error {
	res, err := write(c.Context(), req)
	if err != nil {
		return err
	}
	a.Object(c.W, c.R, http.StatusOK, res.Object, scaleGVK)
	return nil
}
