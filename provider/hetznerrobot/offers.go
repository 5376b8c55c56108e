package hetznerrobot

import (
	"context"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

const (
	standardPath = "/order/server"
	marketPath   = "/order/server_market"
	currency     = "EUR"
	// primaryIPv4 is the addon without which a server has no IPv4 address.
	primaryIPv4 = "primary_ipv4"
	// marketPrefix tells a server of the auction from a standard product. No product of Hetzner's begins with it.
	marketPrefix = "market-"
)

// product is what is sold: a standard product at several locations, or one server of the auction where it stands.
type product struct {
	ID          text      `json:"id"`
	Name        string    `json:"name"`
	Description []text    `json:"description"`
	Location    []text    `json:"location"`
	Prices      []priceAt `json:"prices"`
	Addons      []addon   `json:"orderable_addons"`

	// Of the auction only.
	CPU         text   `json:"cpu"`
	Memory      number `json:"memory_size"`
	Datacenter  string `json:"datacenter"`
	Price       text   `json:"price"`
	PriceHourly text   `json:"price_hourly"`
	PriceSetup  text   `json:"price_setup"`
}

type priceAt struct {
	Location string `json:"location"`
	Price    amount `json:"price"`
	Setup    amount `json:"price_setup"`
}

// amount is without tax.
type amount struct {
	Net       text `json:"net"`
	HourlyNet text `json:"hourly_net"`
}

type addon struct {
	ID     text      `json:"id"`
	Prices []priceAt `json:"prices"`
}

// place is a product at a location, which is an offer.
type place struct {
	product  product
	market   bool
	location string // as Robot writes it
}

// Offers lists every standard product at each of its locations, and every server of the auction.
func (c *client) Offers(ctx context.Context) ([]*model.Offer, error) {
	places, err := c.places(ctx)
	if err != nil {
		return nil, err
	}
	now := model.NewTime(time.Now())
	offers := make([]*model.Offer, 0, len(places))
	for _, p := range places {
		offers = append(offers, p.offer(now))
	}
	return offers, nil
}

// places reads both lists, each place once.
func (c *client) places(ctx context.Context) ([]place, error) {
	places := []place{}
	seen := map[string]bool{}
	for _, path := range []string{standardPath, marketPath} {
		listed, err := list[struct {
			Product *product `json:"product"`
		}](ctx, c, path+"/product")
		if err != nil {
			return nil, err
		}
		for _, l := range listed {
			if l.Product == nil || l.Product.ID == "" {
				continue
			}
			for _, p := range placesOf(*l.Product, path == marketPath) {
				if id := p.offerID(); !seen[id] {
					seen[id] = true
					places = append(places, p)
				}
			}
		}
	}
	return places, nil
}

func placesOf(p product, market bool) []place {
	if market {
		location, _, _ := strings.Cut(p.Datacenter, "-")
		return regional(place{p, true, location})
	}
	places := []place{}
	for _, l := range p.Location {
		places = append(places, regional(place{p, false, string(l)})...)
	}
	return places
}

var wordForm = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\z`)

// regional leaves a place out that is nowhere.
func regional(p place) []place {
	if !wordForm.MatchString(p.location) {
		return nil
	}
	return []place{p}
}

func (p place) offerID() string {
	if p.market {
		return provider.OfferID(marketPrefix+string(p.product.ID), p.location)
	}
	return provider.OfferID(string(p.product.ID), p.location)
}

func (p place) offer(now model.Time) *model.Offer {
	lines := p.product.lines()
	o := &model.Offer{
		ID: p.offerID(), Kind: model.Metal, Region: strings.ToLower(p.location), ProviderRegion: p.location, Name: p.product.Name,
		Arch: archOf(lines), VCPU: coresOf(lines), MemoryGiB: memoryOf(lines), Disks: disksOf(lines), GPU: gpuOf(lines),
		Price: p.price(), Availability: model.AvailabilityUnknown, ObservedAt: now,
	}
	if o.Name == "" {
		o.Name = string(p.product.ID)
	}
	if p.market { // each is one server, and goes from the list when somebody takes it
		o.Availability, o.ProviderRegion = model.Available, p.product.Datacenter
		if m := float64(p.product.Memory); m > 0 && m < 1<<20 {
			o.MemoryGiB = &m
		}
		if o.Arch == nil {
			o.Arch = archOf([]string{string(p.product.CPU)})
		}
	}
	return o
}

// ipv4 is the addon at the place; nil when the product has none.
func (p place) ipv4() *priceAt {
	for _, a := range p.product.Addons {
		if a.ID != primaryIPv4 {
			continue
		}
		return at(a.Prices, p.location)
	}
	return nil
}

func at(prices []priceAt, location string) *priceAt {
	i := slices.IndexFunc(prices, func(x priceAt) bool { return x.Location == location })
	if i < 0 {
		return &priceAt{}
	}
	return &prices[i]
}

// price is what the server costs with its IPv4 address, which it is ordered with.
func (p place) price() *model.Price {
	own := priceAt{Price: amount{Net: p.product.Price, HourlyNet: p.product.PriceHourly}, Setup: amount{Net: p.product.PriceSetup}}
	if !p.market {
		own = *at(p.product.Prices, p.location)
	}
	price := provider.NewPrice(currency, string(own.Price.HourlyNet), string(own.Price.Net))
	setup := provider.NewPrice(currency, "", string(own.Setup.Net))
	if price == nil {
		return nil
	}
	if setup != nil {
		price.Setup = setup.Monthly
	}
	if ip := p.ipv4(); ip != nil {
		address := provider.NewPrice(currency, string(ip.Price.HourlyNet), string(ip.Price.Net))
		addressSetup := provider.NewPrice(currency, "", string(ip.Setup.Net))
		if address == nil {
			return nil // it costs something that is not known
		}
		price.Hourly, price.Monthly = sum(price.Hourly, address.Hourly), sum(price.Monthly, address.Monthly)
		if addressSetup != nil {
			price.Setup = sum(price.Setup, addressSetup.Monthly)
		}
		if price.Hourly == nil && price.Monthly == nil {
			return nil
		}
	}
	return price
}

// sum adds figures as NewPrice gives them; nil when one is not known.
func sum(a, b *string) *string {
	if a == nil || b == nil {
		return nil
	}
	x, ok := new(big.Rat).SetString(*a)
	y, ok2 := new(big.Rat).SetString(*b)
	if !ok || !ok2 {
		return nil
	}
	total := provider.NewPrice(currency, "", x.Add(x, y).FloatString(6))
	if total == nil {
		return nil
	}
	return total.Monthly
}

// lines are the description, which is for people, without signs that are no part of a name.
func (p product) lines() []string {
	lines := []string{}
	for _, l := range p.Description {
		lines = append(lines, strings.NewReplacer("®", "", "™", "", "\u00a0", " ").Replace(string(l)))
	}
	return lines
}

var (
	armWords  = regexp.MustCompile(`(?i)\b(ampere|altra|arm64)\b`)
	x86Words  = regexp.MustCompile(`(?i)\b(intel|amd|xeon|ryzen|epyc)\b`)
	coreWord  = regexp.MustCompile(`(?i)(?:\A([0-9]{1,2})\s?x\s.*)?\b(dual|quad|hexa|six|octa|eight|[0-9]{1,3})[ -]cores?\b`)
	ramForm   = regexp.MustCompile(`(?i)(?:\A\s*([0-9]{1,3})\s?x\s+RAM\s+([0-9]{1,6})\s?(MB|GB)|\b([0-9]{1,6})\s?(MB|GB)\b(?:\s+\S+)?\s+\b(?:DDR[0-9]?|RAM|ECC)\b)`)
	diskForm  = regexp.MustCompile(`(?i)\A\s*([0-9]{1,3})\s?x\s`)
	sizeForm  = regexp.MustCompile(`(?i)\b([0-9]{1,6}(?:[.,][0-9]{1,3})?)\s?(GB|TB)\b`)
	diskWords = regexp.MustCompile(`(?i)\b(nvme|ssd|hdd|sata|sas)\b`)
	noDisk    = regexp.MustCompile(`(?i)\b(raid controller|ram|nic|controller)\b`)
	gpuWords  = regexp.MustCompile(`(?i)\b(nvidia|geforce|rtx|gtx|tesla|quadro)\b`)
	gpuTimes  = regexp.MustCompile(`(?i)\A\s*([0-9]{1,2})\s?x\s`)
	gpuNoise  = regexp.MustCompile(`(?i)\A\s*(?:[0-9]{1,2}\s?x\s+)?(?:gpu\s*[-:]?\s*)?|\([^)]*\)|\b[0-9]+\s?GB\b.*`)
	gpuMemory = regexp.MustCompile(`(?i)\b([0-9]{1,4})\s?GB\b`)
)

func archOf(lines []string) *string {
	for _, l := range lines {
		switch {
		case armWords.MatchString(l):
			return new("arm64")
		case x86Words.MatchString(l):
			return new("amd64")
		}
	}
	return nil
}

var coreNumbers = map[string]int{"dual": 2, "quad": 4, "hexa": 6, "six": 6, "octa": 8, "eight": 8}

// coresOf are what the description tells of; the threads of one it does not.
func coresOf(lines []string) *int {
	for _, l := range lines {
		m := coreWord.FindStringSubmatch(l)
		if m == nil || gpuWords.MatchString(l) {
			continue
		}
		n, named := coreNumbers[strings.ToLower(m[2])]
		if !named {
			n, _ = strconv.Atoi(m[2])
		}
		if times, err := strconv.Atoi(m[1]); err == nil && times > 0 {
			n *= times
		}
		if n > 0 {
			return &n
		}
	}
	return nil
}

func memoryOf(lines []string) *float64 {
	for _, l := range lines {
		m := ramForm.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		times, size, unit := 1.0, m[4], m[5]
		if m[1] != "" {
			times, _ = strconv.ParseFloat(m[1], 64)
			size, unit = m[2], m[3]
		}
		gib, err := strconv.ParseFloat(size, 64)
		if strings.EqualFold(unit, "MB") {
			gib /= 1024
		}
		if gib *= times; err == nil && gib > 0 {
			return &gib
		}
	}
	return nil
}

func disksOf(lines []string) []*model.Disk {
	disks := []*model.Disk{}
	for _, l := range lines {
		count, size := diskForm.FindStringSubmatch(l), sizeForm.FindStringSubmatch(l)
		if count == nil || size == nil || !diskWords.MatchString(l) || noDisk.MatchString(l) {
			continue
		}
		n, _ := strconv.Atoi(count[1])
		gb, err := strconv.ParseFloat(strings.Replace(size[1], ",", ".", 1), 64)
		if strings.EqualFold(size[2], "TB") {
			gb *= 1000
		}
		if err != nil || n < 1 || gb < 1 {
			continue
		}
		disks = append(disks, &model.Disk{SizeGB: int64(gb), Count: n, Media: mediaOf(l)})
	}
	return disks
}

func mediaOf(line string) string {
	line = strings.ToLower(line)
	for _, media := range []string{"nvme", "ssd", "hdd"} {
		if strings.Contains(line, media) {
			return media
		}
	}
	return "unknown"
}

func gpuOf(lines []string) *model.GPU {
	for _, l := range lines {
		if !gpuWords.MatchString(l) {
			continue
		}
		gpu := &model.GPU{Count: 1}
		if m := gpuTimes.FindStringSubmatch(l); m != nil {
			gpu.Count, _ = strconv.Atoi(m[1])
		}
		if m := gpuMemory.FindStringSubmatch(l); m != nil {
			if gib, err := strconv.ParseFloat(m[1], 64); err == nil && gib > 0 {
				gpu.MemoryGiB = &gib
			}
		}
		gpu.Count = max(gpu.Count, 1)
		gpu.Model, gpu.Vendor = provider.NormalizeGPU(gpuNoise.ReplaceAllString(l, " "))
		return gpu
	}
	return nil
}

// server is a machine.
type server struct {
	Number    int64  `json:"server_number"`
	Name      string `json:"server_name"`
	Product   string `json:"product"`
	DC        string `json:"dc"`
	Status    string `json:"status"`
	Cancelled bool   `json:"cancelled"`
	IP        text   `json:"server_ip"`
	IPv6Net   text   `json:"server_ipv6_net"`
	IPs       []text `json:"ip"`
}

// What Robot says of servers and orders. A third word is that they are being made.
const (
	ready     = "ready"
	cancelled = "cancelled"
)

// Machines lists the account's servers.
func (c *client) Machines(ctx context.Context) ([]*model.Machine, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]*model.Machine, 0, len(servers))
	for _, s := range servers {
		location, _, _ := strings.Cut(s.DC, "-")
		m := &model.Machine{
			ID: machineID(s.Number), Name: s.Name, Kind: model.Metal, Region: strings.ToLower(location), Status: s.Status, Addresses: addressesOf(s),
		}
		switch {
		case s.Cancelled:
			m.Status = cancelled
		case m.Status == "":
			m.Status = "unknown"
		}
		if wordForm.MatchString(s.Product) && wordForm.MatchString(location) { // a server of the auction has no offer any more
			m.OfferID = new(provider.OfferID(s.Product, location))
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// servers lists each server once.
func (c *client) servers(ctx context.Context) ([]server, error) {
	listed, err := list[struct {
		Server *server `json:"server"`
	}](ctx, c, "/server")
	if err != nil {
		return nil, err
	}
	servers := []server{}
	seen := map[int64]bool{}
	for _, l := range listed {
		if l.Server != nil && l.Server.Number > 0 && !seen[l.Server.Number] {
			seen[l.Server.Number] = true
			servers = append(servers, *l.Server)
		}
	}
	return servers, nil
}

// addressesOf gives the main address first, and of the main IPv6 network the address that Hetzner's systems take.
func addressesOf(s server) []string {
	addresses := []string{}
	for _, t := range append([]text{s.IP}, s.IPs...) {
		if ip, err := netip.ParseAddr(string(t)); err == nil && ip.Zone() == "" && !slices.Contains(addresses, ip.String()) {
			addresses = append(addresses, ip.String())
		}
	}
	if net, err := netip.ParseAddr(string(s.IPv6Net)); err == nil && net.Is6() && net.Zone() == "" && !net.Is4In6() {
		b := net.As16()
		b[15] |= 2
		if ip := netip.AddrFrom16(b).String(); !slices.Contains(addresses, ip) {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}
