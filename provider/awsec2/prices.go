package awsec2

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

// Prices are told by another API than EC2's, which has places of its own and says everything of every way to buy. It takes some seconds, and the
// answer is the same for all accounts: it is asked for once a day. An account that may not ask has no prices, and everything else.
const (
	priceLife     = 24 * time.Hour
	pricePatience = 15 * time.Second
	priceRetry    = 10 * time.Minute // after a failure
)

// priceBook is what regions' types cost, by the hour, as it was last told.
type priceBook struct {
	now func() time.Time

	mu      sync.Mutex
	regions map[string]regionPrices
}

type regionPrices struct {
	at     time.Time
	hourly map[string]string // by type
}

func newPriceBook() *priceBook {
	return &priceBook{now: time.Now, regions: map[string]regionPrices{}}
}

func (b *priceBook) look(region string) (hourly map[string]string, isFresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.regions[region]
	return p.hourly, p.hourly != nil && b.now().Sub(p.at) < priceLife
}

func (b *priceBook) put(region string, hourly map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.regions[region] = regionPrices{at: b.now(), hourly: hourly}
}

// market is where the prices of a region are told, and in which currency. There is none for the regions of governments.
type market struct{ endpoint, region, currency string }

func marketOf(region string) market {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return market{"https://api.pricing.cn-northwest-1.amazonaws.com.cn", "cn-northwest-1", "CNY"}
	case strings.Contains(region, "gov-"), strings.Contains(region, "iso"):
		return market{}
	}
	return market{"https://api.pricing.us-east-1.amazonaws.com", "us-east-1", "USD"}
}

// market is the account's. An operator's own EC2 has none unless the operator says where.
func (d *Driver) market(region string) market {
	m := marketOf(region)
	switch {
	case d.options.PricingEndpoint != "":
		m.endpoint = strings.TrimSuffix(d.options.PricingEndpoint, "/")
		m.region, m.currency = cmp.Or(m.region, region), cmp.Or(m.currency, "USD")
	case d.options.Endpoint != "":
		return market{}
	}
	return m
}

// hourly is what the region's types cost by the hour; nil while nobody knows.
func (c *client) hourly(ctx context.Context) map[string]string {
	known, isFresh := c.prices.look(c.config.Region)
	if isFresh || c.market.endpoint == "" || !c.mayAskPrices() {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, pricePatience)
	defer cancel()
	told, err := c.askPrices(ctx)
	if err != nil || len(told) == 0 {
		c.noPrices()
		return known // of yesterday, if any: they seldom change
	}
	c.prices.put(c.config.Region, told)
	return told
}

func (c *client) mayAskPrices() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prices.now().Sub(c.unpriced) >= priceRetry
}

func (c *client) noPrices() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unpriced = c.prices.now()
}

// wanted are the attributes of what an order here buys: on demand, with a free system and nothing on it, on hardware that is shared or one's own by
// the type alone.
var wanted = map[string]string{"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "operation": "RunInstances"}

// askPrices reads every page of the region's list.
func (c *client) askPrices(ctx context.Context) (map[string]string, error) {
	filters := []types.Filter{match("regionCode", c.config.Region)}
	for attribute, value := range wanted {
		filters = append(filters, match(attribute, value))
	}
	var items []string
	err := c.vendor.Read(ctx, func(ctx context.Context) error {
		credentials, err := c.credentials(ctx)
		if err != nil {
			return err
		}
		sdk := pricing.New(pricing.Options{
			Region: c.market.region, BaseEndpoint: &c.market.endpoint, HTTPClient: sender{c.vendor.HTTP()}, Retryer: aws.NopRetryer{}, Credentials: credentials,
		})
		items, err = vendor.Cursors(c.vendor, func(cursor string) ([]string, string, error) {
			out, err := sdk.GetProducts(ctx, &pricing.GetProductsInput{
				ServiceCode: aws.String("AmazonEC2"), Filters: filters, MaxResults: aws.Int32(100), NextToken: optional(cursor),
			})
			if err == nil && out.PriceList == nil {
				err = errNoList
			}
			if err != nil {
				return nil, "", err
			}
			return out.PriceList, aws.ToString(out.NextToken), nil
		})
		return err
	})
	return pricesIn(items, c.config.Region, c.market.currency), err
}

func match(attribute, value string) types.Filter {
	return types.Filter{Field: aws.String(attribute), Type: types.FilterTypeTermMatch, Value: aws.String(value)}
}

// listed is one entry of a price list, so far as it is looked at.
type listed struct {
	Product struct {
		Attributes map[string]string `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				Unit         string            `json:"unit"`
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// pricesIn takes the entries that are about what was asked for: a list that was not filtered is no answer to the question. A type that two prices
// are told of has none.
func pricesIn(items []string, region, currency string) map[string]string {
	hourly := map[string]string{}
	contested := map[string]bool{}
	for _, item := range items {
		var l listed
		if json.Unmarshal([]byte(item), &l) != nil || !l.isWanted(region) {
			continue // one odd entry is no reason to have no prices
		}
		name, price := l.Product.Attributes["instanceType"], l.perHour(currency)
		if price == nil || name == "" {
			continue
		}
		before, twice := hourly[name]
		contested[name] = contested[name] || twice && before != *price.Hourly
		hourly[name] = *price.Hourly
	}
	for name := range contested {
		if contested[name] {
			delete(hourly, name)
		}
	}
	return hourly
}

func (l listed) isWanted(region string) bool {
	for attribute, value := range wanted {
		if l.Product.Attributes[attribute] != value {
			return false
		}
	}
	told, known := l.Product.Attributes["regionCode"] // which old entries do not have
	return !known || told == region
}

// perHour is the one price by the hour. Zero is none: AWS lists what is not sold so.
func (l listed) perHour(currency string) (price *model.Price) {
	for _, term := range l.Terms.OnDemand {
		for _, d := range term.PriceDimensions {
			p := provider.NewPrice(currency, d.PricePerUnit[currency], "")
			if d.Unit != "Hrs" || p == nil || *p.Hourly == "0" {
				continue
			}
			if price != nil && *price.Hourly != *p.Hourly {
				return nil
			}
			price = p
		}
	}
	return price
}
