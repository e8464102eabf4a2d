package kubeclient

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// pageTimeout bounds the request of a page.
	pageTimeout = time.Minute
	// pageDivisor divides the size of pages whose response is too large.
	pageDivisor = 4
)

// EachPage lists objects in pages of at most size objects, and calls visit for each page. If a
// response is too large, this page and the following ones are smaller.
func EachPage[L runtime.Object](ctx context.Context, size int64,
	list func(context.Context, metav1.ListOptions) (L, error), visit func(L) error) error {
	options := metav1.ListOptions{Limit: size}
	for {
		page, err := listPage(ctx, list, options)
		if errors.Is(err, ErrResponseTooLarge) && options.Limit > 1 {
			options.Limit = max(1, options.Limit/pageDivisor)
			continue
		}
		if err != nil {
			return err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if err := visit(page); err != nil {
			return err
		}
		options.Continue = m.GetContinue()
		if options.Continue == "" {
			return nil
		}
	}
}

func listPage[L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error),
	o metav1.ListOptions) (L, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return list(ctx, o)
}
