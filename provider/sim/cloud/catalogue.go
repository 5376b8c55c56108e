package cloud

// Offer is a machine type in one location, as this cloud sells it. The shape is a vendor's, on purpose: memory in MiB, the
// memory of all GPUs together, GPU names in several spellings, locations in mixed case, a slash in an id.
type Offer struct {
	ID        string `json:"id"`
	Category  string `json:"category"` // "vps" or "bare_metal"
	Title     string `json:"title"`
	Location  string `json:"location"`
	Arch      string `json:"arch"` // "x86_64" or "aarch64"
	VCPU      int    `json:"vcpu"`
	MemoryMiB int64  `json:"memoryMiB"`
	Disks     []Disk `json:"disks"`
	GPU       *GPU   `json:"gpu"`
	Price     *Price `json:"price"`
	Stock     string `json:"stock,omitempty"` // "in_stock", "low", "none"; empty: the cloud does not say
}

// Disk is a number of equal disks.
type Disk struct {
	SizeGB int64  `json:"sizeGB"`
	Count  int    `json:"count"`
	Type   string `json:"type"`
}

// GPU is what an offer has of one GPU model. VRAMTotalGiB is that of all of them together.
type GPU struct {
	Name         string `json:"name"`
	Count        int    `json:"count"`
	VRAMTotalGiB int64  `json:"vramTotalGiB"`
}

// Price has decimal strings; an empty one is not sold that way.
type Price struct {
	Hourly      string `json:"hourly,omitempty"`
	Monthly     string `json:"monthly,omitempty"`
	Setup       string `json:"setup,omitempty"`
	Currency    string `json:"currency"`
	VATIncluded bool   `json:"vatIncluded"`
}

// Catalogue is what the cloud sells when Options names nothing else.
func Catalogue() []Offer {
	return append(virtualOffers(), metalOffers()...)
}

func virtualOffers() []Offer {
	nvme := func(gb int64) []Disk { return []Disk{{gb, 1, "NVMe SSD"}} }
	vps := func(id, title, location string, vcpu int, memoryGiB, diskGB int64, price *Price) Offer {
		return Offer{
			ID: id, Category: "vps", Title: title, Location: location, Arch: "x86_64", VCPU: vcpu,
			MemoryMiB: memoryGiB << 10, Disks: nvme(diskGB), Price: price, Stock: "in_stock",
		}
	}
	small, medium, large := price("0.0080", "4.49"), price("0.0270", "15.90"), price("0.1100", "69.90")

	arm := vps("arm4:fra1", "ARM 4", "FRA1", 4, 8, 80, price("0.0065", "3.79"))
	arm.Arch = "aarch64"

	l40s := vps("gpu-l40s-1:us-east-1", "GPU L40S", "US-East-1", 16, 96, 400, price("1.5700", ""))
	l40s.GPU = &GPU{"nvidia_l40s", 1, 48}
	l40s.Stock = "low"

	a100 := vps("gpu-a100-40-1:us-east-1", "GPU A100", "US-East-1", 12, 85, 500, price("2.1000", ""))
	a100.GPU = &GPU{"NVIDIA A100-SXM4-40GB", 1, 40}

	soldOut := vps("vps-large:nyc-2", "VPS large", "NYC 2", 16, 64, 640, large)
	soldOut.Stock = "none"

	return []Offer{
		vps("vps-small:fra1", "VPS small", "FRA1", 2, 4, 40, small),
		vps("vps-small:hel1", "VPS small", "HEL1", 2, 4, 40, small),
		vps("vps-medium:fra1", "VPS medium", "FRA1", 4, 16, 160, medium),
		vps("vps-medium:us-east-1", "VPS medium", "US-East-1", 4, 16, 160, medium),
		vps("vps-large:fra1", "VPS large", "FRA1", 16, 64, 640, large),
		soldOut, arm, l40s, a100,
	}
}

func metalOffers() []Offer {
	metal := func(id, title, location string, vcpu int, memoryGiB int64, disks []Disk, gpu *GPU, price *Price) Offer {
		return Offer{
			ID: id, Category: "bare_metal", Title: title, Location: location, Arch: "x86_64", VCPU: vcpu,
			MemoryMiB: memoryGiB << 10, Disks: disks, GPU: gpu, Price: price, Stock: "in_stock",
		}
	}
	monthly := func(amount, setup string) *Price { return &Price{Monthly: amount, Setup: setup, Currency: "EUR"} }

	unpriced := metal("metal-gh200:nyc-2", "Metal GH200", "NYC 2", 72, 480, []Disk{{3840, 2, "NVMe SSD"}},
		&GPU{"GH200 (96 GB)", 1, 96}, nil)
	unpriced.Arch = "aarch64"
	unpriced.Stock = ""

	taxed := monthly("179.69", "0.00")
	taxed.VATIncluded = true

	return []Offer{
		metal("metal-entry:fra1", "Metal entry", "FRA1", 12, 64, []Disk{{512, 2, "NVMe SSD"}}, nil, monthly("44.00", "39.00")),
		metal("metal-storage:hel1", "Metal storage", "HEL1", 16, 128, []Disk{{480, 2, "SATA SSD"}, {16000, 10, "SATA HDD"}}, nil, taxed),
		metal("metal-rtx/6000@hel1", "Metal RTX", "HEL1", 48, 256, []Disk{{1920, 2, "NVMe SSD"}},
			&GPU{"nvidia_rtx_pro_6000", 2, 192}, monthly("1399.00", "99.00")),
		metal("metal-a100-80x4:us-east-1", "Metal A100", "US-East-1", 128, 1024, []Disk{{3840, 4, "NVMe SSD"}},
			&GPU{"A100 (80 GB SXM4)", 4, 320}, price("7.2000", "")),
		metal("metal-h100x8:us-east-1", "Metal H100", "US-East-1", 208, 1800, []Disk{{480, 2, "NVMe SSD"}, {3840, 8, "NVMe SSD"}},
			&GPU{"nvidia_h100_80gb_hbm3", 8, 640}, price("19.9200", "")),
		unpriced,
	}
}

func price(hourly, monthly string) *Price {
	return &Price{Hourly: hourly, Monthly: monthly, Currency: "EUR"}
}
