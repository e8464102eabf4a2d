package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	widgetGroup     = "conformance.example.com"
	widgetNamespace = "custom-resources"
	widgetOwner     = "owner"
	widgetQuota     = "quota"
	// widgetTimeout bounds each wait. kube-controller-manager looks for new resources every 30
	// seconds.
	widgetTimeout = 3 * time.Minute
	// widgetCount is the number of widgets that the quota permits.
	widgetCount = 3
)

var widgets = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "widgets"}

// customResources checks that controllers handle custom resources. Its checks depend on each other
// in their order.
type customResources struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	crds    apiextensions.Interface
}

// checkCustomResources defines a resource and runs the checks. It returns a result for each.
func checkCustomResources(ctx context.Context, config *rest.Config) ([]row, error) {
	var c customResources
	var errs [3]error
	c.client, errs[0] = kubernetes.NewForConfig(config)
	c.dynamic, errs[1] = dynamic.NewForConfig(config)
	c.crds, errs[2] = apiextensions.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var rows []row
	for _, check := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"a definition is served", c.define},
		{"a quota counts them", c.count},
		{"dependents of them, and dependents that they are, are collected", c.collect},
		{"a quota releases deleted ones", c.release},
		{"a namespace with them is deleted", c.deleteNamespace},
	} {
		start := time.Now()
		r := row{name: "[custom-resources] " + check.name, state: passed}
		if err := check.run(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r.state, r.remark, r.differs = failed, err.Error(), true
		}
		r.took = time.Since(start)
		fmt.Printf("%s: %s %s\n", r.state, check.name, r.remark)
		rows = append(rows, r)
	}
	return rows, c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "widgets."+widgetGroup, metav1.DeleteOptions{})
}

func (c customResources) define(ctx context.Context) error {
	preserve := true
	_, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + widgetGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgetGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type:                   "object",
					XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: widgetNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return eventually(ctx, widgetTimeout, "the resource is served", func(ctx context.Context) error {
		_, err := c.dynamic.Resource(widgets).Namespace(widgetNamespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// count fills a quota.
func (c customResources) count(ctx context.Context) error {
	hard := corev1.ResourceList{widgetCountResource(): resource.MustParse(fmt.Sprint(widgetCount))}
	_, err := c.client.CoreV1().ResourceQuotas(widgetNamespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: widgetQuota}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := c.used(ctx, 0); err != nil {
		return err
	}
	for i := range widgetCount {
		if _, err := c.create(ctx, widgets, "Widget", fmt.Sprintf("%s-%d", widgetOwner, i)); err != nil {
			return err
		}
	}
	if err := c.used(ctx, widgetCount); err != nil {
		return err
	}
	if _, err := c.create(ctx, widgets, "Widget", "excess"); !apierrors.IsForbidden(err) {
		return fmt.Errorf("a widget beyond the quota: got %v", err)
	}
	return nil
}

// collect deletes a widget that owns a config map, which owns another widget.
func (c customResources) collect(ctx context.Context) error {
	owner, err := c.dynamic.Resource(widgets).Namespace(widgetNamespace).Get(ctx, widgetOwner+"-0", metav1.GetOptions{})
	if err != nil {
		return err
	}
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	if _, err := c.create(ctx, configMaps, "ConfigMap", "dependent", owner); err != nil {
		return err
	}
	dependent, err := c.dynamic.Resource(configMaps).Namespace(widgetNamespace).Get(ctx, "dependent", metav1.GetOptions{})
	if err != nil {
		return err
	}
	second := c.dynamic.Resource(widgets).Namespace(widgetNamespace)
	other, err := second.Get(ctx, widgetOwner+"-1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	other.SetOwnerReferences([]metav1.OwnerReference{ownerReference(dependent)})
	if _, err := second.Update(ctx, other, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := second.Delete(ctx, owner.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, widgetTimeout, "the dependents are deleted", func(ctx context.Context) error {
		_, err := c.dynamic.Resource(configMaps).Namespace(widgetNamespace).Get(ctx, "dependent", metav1.GetOptions{})
		_, otherErr := second.Get(ctx, other.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(otherErr) {
			return fmt.Errorf("the config map: %v; the widget: %v", err, otherErr)
		}
		return nil
	})
}

// release waits until the quota counts only the widget that no other one owned.
func (c customResources) release(ctx context.Context) error { return c.used(ctx, 1) }

func (c customResources) deleteNamespace(ctx context.Context) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, widgetNamespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, widgetTimeout, "the namespace is deleted", func(ctx context.Context) error {
		ns, err := c.client.CoreV1().Namespaces().Get(ctx, widgetNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("its conditions are %v", ns.Status.Conditions))
	})
}

// used waits until the status of the quota has a number of widgets.
func (c customResources) used(ctx context.Context, n int64) error {
	return eventually(ctx, widgetTimeout, "the status of the quota", func(ctx context.Context) error {
		q, err := c.client.CoreV1().ResourceQuotas(widgetNamespace).Get(ctx, widgetQuota, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, ok := q.Status.Used[widgetCountResource()]; !ok || got.Value() != n {
			return fmt.Errorf("used is %v, want %d", q.Status.Used, n)
		}
		return nil
	})
}

func widgetCountResource() corev1.ResourceName {
	return corev1.ResourceName("count/widgets." + widgetGroup)
}

func (c customResources) create(ctx context.Context, of schema.GroupVersionResource, kind, name string,
	owners ...*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(of.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	var references []metav1.OwnerReference
	for _, owner := range owners {
		references = append(references, ownerReference(owner))
	}
	o.SetOwnerReferences(references)
	return c.dynamic.Resource(of).Namespace(widgetNamespace).Create(ctx, o, metav1.CreateOptions{})
}

func ownerReference(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}
}
